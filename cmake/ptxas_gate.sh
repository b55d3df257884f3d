#!/usr/bin/env bash
# Compiler launcher for nvcc: runs the command it is given and fails when ptxas reports a register spill or a
# serialised wgmma (its note C7510), either of which costs more speed than any test would notice. The resource report
# of each object is kept beside it as <object>.ptxas.
set -u

object=""
for ((i = 1; i <= $#; i++)); do
  if [[ ${!i} == -o ]]; then
    next=$((i + 1))
    object=${!next}
  fi
done

log=$(mktemp)
trap 'rm -f "$log"' EXIT
"$@" >"$log" 2>&1
status=$?

# The per-kernel report is long; it goes to its file, everything else to the terminal.
report='^ptxas info|^ *[0-9]+ bytes stack frame|^ *Function properties for'
grep -vE "$report" "$log" >&2
if [[ -n $object && $status -eq 0 ]]; then
  grep -E "$report" "$log" >"$object.ptxas"
fi
[[ $status -eq 0 ]] || exit "$status"

fault='C7510|wgmma.*serialized|(^|[^0-9])[1-9][0-9]* bytes spill'
if grep -qE "$fault" "$log"; then
  echo "ptxas_gate: ${object:-the device code} has register spills or a serialised wgmma:" >&2
  grep -E -B2 "$fault" "$log" | grep -E "$fault|Function properties|Compiling entry" >&2
  [[ -z $object ]] || rm -f "$object"
  exit 1
fi
