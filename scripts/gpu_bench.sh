#!/usr/bin/env bash
# Builds with the Hopper backend and times each program beside cuBLASLt's bare product on this machine's GPU. Writes
# results/<gpu>/kernels.json. Arguments go to the program, for example --rounds 100 or 16384,4096,4096.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v nvidia-smi >/dev/null || {
  echo "gpu_bench: no NVIDIA driver on this machine" >&2
  exit 1
}
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
name=$(echo "${gpu#NVIDIA }" | tr 'A-Z ' 'a-z_')
commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
[[ -z $(git status --porcelain 2>/dev/null) ]] || commit=$commit-modified

cmake --preset cuda >/dev/null
cmake --build --preset cuda --target gpu_kernels
bench_program=$(find build/cuda -name gpu_kernels -type f -perm -u+x | head -n 1)
mkdir -p "results/$name"
"$bench_program" --out "results/$name/kernels.json" --commit "$commit" --driver "$driver" --date "$(date -u +%F)" "$@"
echo "gpu_bench: wrote results/$name/kernels.json"
