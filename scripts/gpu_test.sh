#!/usr/bin/env bash
# Builds with the Hopper backend, runs all that tests it on this machine's GPU, and prints one total.
#
#   gpu_test.sh [gtest arguments]     every test, `coda verify --all --backend sm90` and 300 random cases
#   gpu_test.sh --fuzz CASES [SEED]   random cases only, spread over processes: seeds SEED (1) to SEED + CASES - 1
#   gpu_test.sh --sanitize [TOOL...]  each kernel once under compute-sanitizer: memcheck racecheck synccheck
#
# CODA_TEST_SECONDS: how long the threads run (5). CODA_PREBUILT=1: run build/cuda as it is. Logs lie in build/cuda/.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/local/cuda/bin"
# The CPU's side of a test is short: few threads that wait asleep, beside those of other tests.
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

fail() {
  echo "gpu_test: $1" >&2
  exit 1
}
command -v nvidia-smi >/dev/null || fail "no NVIDIA driver on this machine"
gpu=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader | head -n 1)
[[ $gpu == *" 9.0" ]] || fail "expected a Hopper GPU (compute capability 9.0), got $gpu"

tests=()
for source in tests/gpu/*_test.cpp; do tests+=("$(basename "$source" .cpp)"); done
logs=build/cuda

build() {
  [[ -z ${CODA_PREBUILT:-} ]] || return 0
  cmake --preset cuda >/dev/null
  cmake --build --preset cuda --target "$@" >"$logs/gpu_build.log" 2>&1 || {
    grep -E 'error|FAILED' "$logs/gpu_build.log" | head -n 20
    fail "the build failed: $logs/gpu_build.log"
  }
}
mkdir -p "$logs"

fuzz() {
  local cases=$1 first=$2 processes each from pids=() status=0
  processes=$(($(nproc) / 2))
  ((processes = processes > 8 ? 8 : processes < 1 ? 1 : processes))
  each=$(((cases + processes - 1) / processes))
  for ((from = first; from < first + cases; from += each)); do
    ((each = each < first + cases - from ? each : first + cases - from))
    CODA_FUZZ_CASES=$each CODA_FUZZ_SEED=$from OMP_NUM_THREADS=1 build/cuda/tests/fuzz_test --gtest_brief=1 \
      >"$logs/fuzz_$from.log" 2>&1 &
    pids+=("$!:$logs/fuzz_$from.log")
  done
  for pid in "${pids[@]}"; do
    wait "${pid%%:*}" || status=1
    grep -vE '^\[|^Running|^Note|^$' "${pid#*:}" || true
  done
  return "$status"
}

# Each kernel once, in memory of its own size: what a tool watches is each access.
sanitize_with() { # sanitize_with <tool> <log>
  local tool=$1 status=0
  local watch=(compute-sanitizer --tool "$tool" "${extra[@]}" --error-exitcode 9 --print-limit 20)
  "${watch[@]}" build/cuda/tests/programs_test --gtest_brief=1 --gtest_filter='Programs.HoldTheBound*' || status=1
  [[ $tool != memcheck ]] || # wrong indices, too, must not lead outside
    "${watch[@]}" build/cuda/tests/extremes_test --gtest_brief=1 --gtest_filter='BadIndices.*' || status=1
  return "$status"
}
sanitize() {
  local tool log jobs=() status=0
  export CODA_TEST_SMALL=1 CODA_TEST_SEPARATE_BUFFERS=1
  for tool in "$@"; do
    # A test copies back elements that no call writes, such as the loss of a row without a target.
    local extra=()
    [[ $tool != initcheck ]] || extra=(--check-api-memory-access no)
    log=$logs/sanitize_$tool.log
    sanitize_with "$tool" >"$log" 2>&1 &
    jobs+=("$!:$tool:$log")
  done
  for job in "${jobs[@]}"; do
    wait "${job%%:*}" || status=1
    log=${job##*:} tool=${job#*:} tool=${tool%%:*}
    echo "$tool: $(grep -E '^\[  (PASSED|FAILED)|SUMMARY' "$log" | tr -s ' =' ' ' | paste -sd ';')"
  done
  return "$status"
}

case ${1:-} in
  --fuzz)
    [[ ${2:-} =~ ^[0-9]+$ ]] || fail "--fuzz: expected a number of cases, got '${2:-}'"
    build fuzz_test
    fuzz "$2" "${3:-1}"
    exit
    ;;
  --sanitize)
    shift
    command -v compute-sanitizer >/dev/null || fail "no compute-sanitizer on this machine"
    build programs_test extremes_test
    # initcheck takes far longer, and it does not see what the bulk copy engine writes: it reports each read of such
    # memory, cuBLASLt's products among it.
    if (($# == 0)); then set -- memcheck racecheck synccheck; fi
    sanitize "$@"
    exit
    ;;
esac

build "${tests[@]}" coda_cli
run() { # run <name> <command...>: its output and its exit status
  local name=$1 status=0
  shift
  "$@" >"$logs/$name.log" 2>&1 || status=$?
  echo "$status" >"$logs/$name.status"
}
# Several at once: most of the time goes into references on the CPU.
jobs=()
start() {
  while (($(jobs -rp | wc -l) >= 4)); do wait -n || true; done
  run "$@" &
  jobs+=("$1")
}
(($# > 0)) || start verify build/cuda/coda verify --all --backend sm90
for name in "${tests[@]}"; do start "$name" build/cuda/tests/"$name" --gtest_brief=1 "$@"; done
wait

ran=0 passed=0 skipped=0 broken=() verify="not run"
count() { # count <beginning> <log>: the number in a line of GoogleTest's summary, 0 if there is none
  sed -nE "s/^\[$1\] ([0-9]+) tests?\b.*/\1/p" "$2" | grep -v 'Running' | tail -n 1 | grep . || echo 0
}
for name in "${jobs[@]}"; do
  log=$logs/$name.log
  good=$([[ $(<"$logs/$name.status") == 0 ]] && echo yes || echo no)
  if [[ $name == verify ]]; then
    verify=$(grep -E 'outputs of [0-9]+ cases' "$log" || echo "ended early: $log")
    [[ $good == yes ]] || { broken+=("coda verify") && grep -m 20 FAILED "$log"; } || true
    continue
  fi
  [[ $good == yes ]] || grep -vE -m 40 '^Running|^Note|^$' "$log" || true
  grep -qE '^\[=+\].* ran\.' "$log" || broken+=("$name") # it ended before its summary
  ran=$((ran + $(count '=+' "$log"))) passed=$((passed + $(count '  PASSED  ' "$log")))
  skipped=$((skipped + $(count '  SKIPPED ' "$log")))
done
failed=$((ran - passed - skipped))
echo "tests: $ran run, $passed passed, $failed failed, $skipped skipped"
echo "verify: $verify"
grep -hE '^fuzz: ' "$logs/fuzz_test.log" || echo "fuzz: not run"
((${#broken[@]} == 0)) || echo "broken: ${broken[*]}"
((failed == 0 && ${#broken[@]} == 0))
