# shellcheck shell=bash disable=SC2034
# Sourced by the scripts that run on a GPU: which one it is, and what runs there.

gpu_name=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1)
gpu_driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -n 1)
gpu_results=results/$(tr 'A-Z ' 'a-z_' <<<"${gpu_name#NVIDIA }")
gpu_commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
[[ -z $(git status --porcelain -- . ':!results' 2>/dev/null) ]] || gpu_commit=$gpu_commit-modified
gpu_commit=${CODA_COMMIT:-$gpu_commit}
