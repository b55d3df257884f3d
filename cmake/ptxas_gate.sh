#!/usr/bin/env bash
# ptxas_gate.sh [--warn] <command>: compiler launcher for nvcc: runs the command it is given and fails (with --warn it
# only says so) when ptxas reports a register spill or a serialised wgmma (its note C7510), either of which costs more
# speed than any test would notice. The resource report of each object is kept beside it as <object>.ptxas.
set -u

warn=""
if [[ ${1:-} == --warn ]]; then
  warn="warning: "
  shift
fi
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
  echo "ptxas_gate: $warn${object:-the device code} has register spills or a serialised wgmma:" >&2
  grep -E -B2 "$fault" "$log" | grep -E "$fault|Function properties|Compiling entry" >&2
  if [[ -n $warn ]]; then
    echo "ptxas_gate: a kernel that is slower than it could be: CUDA 13.0 may need fewer registers; give a program of your" \
      "own fewer ports or another coda::sm90::Tuning, or compare with coda::sm90::kFused<program> = false" >&2
    exit 0
  fi
  [[ -z $object ]] || rm -f "$object"
  exit 1
fi
