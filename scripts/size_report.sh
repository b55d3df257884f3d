#!/usr/bin/env bash
# What the device code weighs: kernels, the most registers and the bytes of each compiled .cu file, and of the library.
# usage: size_report.sh [BUILD]     (default: build/cuda)
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/.."
build=${1:-build/cuda}

mapfile -t reports < <(find "$build" -name '*.cu.o.ptxas' | sort)
((${#reports[@]} > 0)) || {
  echo "size_report: no device code in $build" >&2
  exit 1
}
printf '%-28s %8s %10s %12s\n' file kernels registers "device KiB"
kernels=0 bytes=0
for report in "${reports[@]}"; do
  object=${report%.ptxas}
  count=$(grep -c 'Compiling entry function' "$report" || true)
  registers=$(sed -nE 's/.*Used ([0-9]+) registers.*/\1/p' "$report" | sort -n | tail -n 1)
  size=$(size -A "$object" | awk '$1 ~ /nv_fatbin/ {sum += $2} END {print sum + 0}')
  printf '%-28s %8d %10s %12d\n' "$(basename "$object" .o)" "$count" "${registers:--}" $((size / 1024))
  kernels=$((kernels + count)) bytes=$((bytes + size))
done
printf '%-28s %8d %10s %12d\n' total "$kernels" "" $((bytes / 1024))
while read -r library; do
  echo "$library: $(($(stat -c %s "$library") / 1024)) KiB"
done < <(find "$build" -name 'libcoda*' -type f | sort)
