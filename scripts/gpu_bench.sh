#!/usr/bin/env bash
# Builds with the Hopper backend and measures it on this machine's GPU: each program beside cuBLASLt's bare product, the
# host's time for a call, the small kernels beside a copy, and a layer beside its products. Writes
# results/<gpu>/{kernels,host,small,layer}.json.
#
#   gpu_bench.sh [--peers] [--quick] [options of coda bench, such as --rounds 20]
#     --peers: also eager PyTorch, torch.compile and QuACK, where PYTHON (python3) has them: peers.json, in four minutes;
#              the paper's kernels and a training step from PyTorch beside theirs: paper.json and step.json, in three
#     --quick: 2048, 4096 and 8192 only, and the host's time, in less than a minute
# CODA_PREBUILT=1: run build/cuda as it is. CODA_COMMIT: the commit to record, if this is not its git checkout.
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/local/cuda/bin"

command -v nvidia-smi >/dev/null || {
  echo "gpu_bench: no NVIDIA driver on this machine" >&2
  exit 1
}
# shellcheck source=scripts/gpu_common.sh
source scripts/gpu_common.sh

peers=
if [[ ${1:-} == --peers ]]; then
  peers=yes
  shift
fi
# Both the programs' and the plain product's first call must be the first of a process.
runs=("host,kernels,few-rows,models,layer" small)
if [[ ${1:-} == --quick ]]; then
  runs=("host,kernels")
  shift
fi
if [[ -z ${CODA_PREBUILT:-} ]]; then
  cmake --preset cuda >/dev/null
  cmake --build --preset cuda --target coda_cli
  rm -f build/cuda/python/pycoda/libcoda_torch.so # of an earlier build, if this one has no PyTorch
  if [[ -n $peers ]] && grep -q libcoda_torch build/cuda/build.ninja; then
    cmake --build --preset cuda --target coda_torch_package
  fi
fi
for suites in "${runs[@]}"; do
  build/cuda/coda bench --backend sm90 --suite "$suites" --out "$gpu_results/" --commit "$gpu_commit" "$@"
done
echo "gpu_bench: wrote $gpu_results/"

[[ -n $peers ]] || exit 0
python=${PYTHON:-python3}
if "$python" -c 'import torch' 2>/dev/null; then
  PYTHONPATH=$PWD/build/cuda/python "$python" bench/peers/peers.py --out "$gpu_results/peers.json" --commit "$gpu_commit" --driver "$gpu_driver" \
    --date "$(date -u +%F)"
  PYTHONPATH=$PWD/build/cuda/python "$python" bench/peers/paper.py --out "$gpu_results/paper.json" --commit "$gpu_commit" \
    --driver "$gpu_driver" --date "$(date -u +%F)" || echo "gpu_bench: --peers: no paper.json" >&2
  PYTHONPATH=$PWD/build/cuda/python "$python" bench/peers/step.py --out "$gpu_results/step.json" --commit "$gpu_commit" \
    --driver "$gpu_driver" || echo "gpu_bench: --peers: no step.json" >&2
else
  echo "gpu_bench: --peers: skipped: $python has no PyTorch" >&2
fi
