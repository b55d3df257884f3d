#!/usr/bin/env bash
# Builds with the Hopper backend and runs its tests on this machine's GPU. Arguments go to the test program, for example
# --gtest_filter='*swiglu*'.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v nvidia-smi >/dev/null || {
  echo "gpu_test: no NVIDIA driver on this machine" >&2
  exit 1
}
cmake --preset cuda >/dev/null
cmake --build --preset cuda --target sm90_test
test_program=$(find build/cuda -name sm90_test -type f -perm -u+x | head -n 1)
"$test_program" "$@" | tee build/cuda/gpu_test.log
if grep -q 'SKIPPED' build/cuda/gpu_test.log; then
  echo "gpu_test: tests were skipped: this machine has no Hopper GPU that can be used" >&2
  exit 1
fi
