#!/usr/bin/env bash
# Installs what a bare Debian 12 or 13 lacks: Debian packages for the C++ side, PyPI packages into .deps/.
# usage: scripts/setup.sh [build] [python] [cuda] [lint] [clang] [hf]     (default: build python cuda)
# Safe to run again: what is there already costs a fraction of a second.
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/.."

readonly build_packages=(
  g++ cmake ninja-build ccache ca-certificates
  libdnnl-dev ocl-icd-opencl-dev opencl-c-headers # oneDNN's CMake package asks for OpenCL
  libfmt-dev nlohmann-json3-dev libcli11-dev
  libgtest-dev
  bible-kjv # the text that the demo learns
)
readonly python_packages=(python3 python3-venv ca-certificates)
readonly lint_packages=(clang-tidy libomp-dev shellcheck) # clang has no omp.h of its own
readonly clang_packages=(clang libclang-rt-dev libomp-dev) # with ThreadSanitizer, libFuzzer and OpenMP

say() { echo "setup: $*" >&2; }
fail() {
  say "error: $*"
  exit 1
}

# retry <command...>: three attempts, for networks that drop a connection now and then.
retry() {
  local attempt
  for attempt in 1 2 3; do
    "$@" && return 0
    [[ $attempt == 3 ]] || { say "failed, trying again in $((attempt * 5)) s: $*" && sleep $((attempt * 5)); }
  done
  return 1
}

apt() {
  DEBIAN_FRONTEND=noninteractive apt-get -qq -o Acquire::Retries=3 -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" \
    </dev/null
}

# The package lists of a fresh container are empty, and those of an old machine may name files that are gone.
apt_install() { apt install -y --no-install-recommends "$@" >>.deps/setup.log 2>&1; }
apt_update_and_install() { apt update >>.deps/setup.log 2>&1 && apt_install "$@"; }

debian() {
  local package missing=()
  for package in "$@"; do
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || missing+=("$package")
  done
  [[ ${#missing[@]} -gt 0 ]] || return 0
  command -v apt-get >/dev/null || fail "not a Debian machine; install the equivalents of: ${missing[*]}; then: cmake --preset cpu && cmake --build --preset cpu"
  [[ $EUID -eq 0 ]] || fail "not root; run this first: sudo apt-get install ${missing[*]}"
  say "installing ${#missing[@]} Debian packages: ${missing[*]}"
  apt_install "${missing[@]}" || retry apt_update_and_install "${missing[@]}" ||
    fail "apt-get could not install ${missing[*]}; its messages are in .deps/setup.log"
}

# Each folder in .deps/ keeps the checksum of the pins that it was made from: the same pins need no second look.
unchanged() { sha256sum --status -c "$1/pins.sha256" 2>/dev/null; }
remember() { sha256sum "$2" >"$1/pins.sha256"; }

# The scripts of a venv name their interpreter by its path: of one that was moved they are no use.
in_place() {
  local python
  python=$(realpath -m "$1")/bin/python
  grep -qsF -e "#!$python" -e " $python" -e "\"$python" "$1/bin/pip"
}

venv() {
  ! in_place "$1" || return 0
  debian "${python_packages[@]}"
  rm -rf "$1"
  /usr/bin/python3 -m venv "$(realpath -m "$1")"
}

# pins <venv> <requirements file> <more arguments of pip...>
pins() {
  local venv=$1 requirements=$2
  shift 2
  say "installing $(grep -c == "$requirements") PyPI packages of $requirements"
  retry "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps -r "$requirements" "$@" ||
    fail "pip could not install $requirements"
}

python() {
  ! unchanged .deps/venv || ! in_place .deps/venv || return 0
  venv .deps/venv
  pins .deps/venv scripts/requirements.txt
  remember .deps/venv scripts/requirements.txt
}

# Where cmake/CodaCuda.cmake looks.
has_nvcc() {
  local place
  for place in "${CUDACXX:-nvcc}" nvcc {"${CUDA_PATH:-}","${CUDA_HOME:-}",/usr/local/cuda}/bin/nvcc; do
    ! command -v "$place" >/dev/null || return 0
  done
  return 1
}

cuda() {
  if ! has_nvcc; then
    say "no nvcc here: the Hopper backend is left out"
    return 0
  fi
  ! unchanged .deps/cutlass || return 0
  venv .deps/venv
  pins .deps/venv scripts/requirements-cuda.txt --upgrade --target .deps/cutlass
  remember .deps/cutlass scripts/requirements-cuda.txt
}

hf() {
  ! unchanged .deps/hf || ! in_place .deps/hf || return 0
  [[ ! -e .deps/hf/pins.sha256 ]] || rm -rf .deps/hf # a new PyTorch would keep the old one's libraries without a GPU
  venv .deps/hf
  pins .deps/hf scripts/requirements-hf.txt
  .deps/hf/bin/python scripts/torch_without_cuda.py .deps/hf/lib/python3.*/site-packages
  remember .deps/hf scripts/requirements-hf.txt
}

main() {
  local part
  for part in "$@"; do
    [[ $part =~ ^(build|python|cuda|lint|clang|hf)$ ]] ||
      fail "unknown part '$part'; expected build, python, cuda, lint, clang or hf"
  done
  mkdir -p .deps
  exec 9>.deps/lock
  flock 9 # two makes at once
  for part in "$@"; do
    case $part in
      build) debian "${build_packages[@]}" ;;
      lint) debian "${lint_packages[@]}" ;;
      clang) debian "${clang_packages[@]}" ;;
      *) "$part" ;;
    esac
  done
}

[[ $# -gt 0 ]] || set -- build python cuda
main "$@"
