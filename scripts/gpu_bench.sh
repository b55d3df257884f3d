#!/usr/bin/env bash
# Builds with the Hopper backend and measures it on this machine's GPU: each program beside cuBLASLt's bare product, the
# host's time for a call, the small kernels beside a copy, and a layer beside its products. Writes
# results/<gpu>/{kernels,host,small,layer}.json.
#
#   gpu_bench.sh [--peers] [--quick] [arguments of gpu_kernels]
#     --peers: also eager PyTorch, torch.compile and QuACK, where PYTHON (python3) has them: peers.json, in four minutes
#     --quick: 2048, 4096 and 8192 only, in less than a minute
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/local/cuda/bin"

command -v nvidia-smi >/dev/null || {
  echo "gpu_bench: no NVIDIA driver on this machine" >&2
  exit 1
}
gpu=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
name=$(echo "${gpu#NVIDIA }" | tr 'A-Z ' 'a-z_')
commit=${CODA_COMMIT:-$(git rev-parse --short HEAD 2>/dev/null || echo unknown)}
[[ -z $(git status --porcelain 2>/dev/null) ]] || commit=$commit-modified
from=(--commit "$commit" --driver "$driver" --date "$(date -u +%F)")

peers=
if [[ ${1:-} == --peers ]]; then
  peers=yes
  shift
fi
programs=(gpu_kernels)
[[ ${1:-} == --quick ]] || programs+=(gpu_layer gpu_small)
if [[ -z ${CODA_PREBUILT:-} ]]; then
  cmake --preset cuda >/dev/null
  cmake --build --preset cuda --target "${programs[@]}"
fi
mkdir -p "results/$name"
for program in "${programs[@]}"; do
  out=results/$name/${program#gpu_}.json
  case $program in
    gpu_kernels) build/cuda/bench/gpu_kernels --out "$out" --host "results/$name/host.json" "${from[@]}" "$@" ;;
    *) "build/cuda/bench/$program" --out "$out" "${from[@]}" ;;
  esac
  echo "gpu_bench: wrote $out"
done

[[ -n $peers ]] || exit 0
python=${PYTHON:-python3}
if "$python" -c 'import torch' 2>/dev/null; then
  "$python" bench/peers/peers.py --out "results/$name/peers.json" "${from[@]}"
else
  echo "gpu_bench: --peers: skipped: $python has no PyTorch" >&2
fi
