#!/usr/bin/env bash
# Trains a small language model on real text through the programs, then compares them with the same maths unfused.
# usage: scripts/demo.sh [command coda]      (default: build/cpu/coda)
# environment: DATA=<text file>    learn this text; default: the King James Bible of the Debian package bible-kjv
#              MINUTES=<number>    for all of it, about; default: 3. A slow machine trains fewer steps.
set -euo pipefail
readonly here=$PWD
CDPATH="" cd "$(dirname "$0")/.."
export LC_ALL=C  # numbers have a point
from_here() { [[ $1 == /* ]] && printf '%s' "$1" || printf '%s' "$here/$1"; }

coda=${1:+$(from_here "$1")}
readonly coda=${coda:-build/cpu/coda}
readonly out=build/demo checkpoint=build/demo/checkpoint python=.deps/venv/bin/python
readonly minutes=${MINUTES:-3}
# Threads that wait give their core back soon: as fast alone, and more than twice as fast beside other work.
[[ -n ${OMP_WAIT_POLICY:-} ]] || export GOMP_SPINCOUNT=${GOMP_SPINCOUNT:-10000}

say() { printf '\n== %s\n' "$*" >&2; }
fail() {
  echo "demo: error: $*" >&2
  exit 1
}
part() { awk -v m="$minutes" -v p="$1" 'BEGIN { printf "%.3f", m * p }'; }

[[ -x $coda ]] || fail "$coda: expected the command coda, built; \`make demo\` builds it"
[[ $minutes =~ ^[0-9]*\.?[0-9]+$ && $(part 0.4) != 0.000 ]] || fail "MINUTES: expected a number above 0.001, got $minutes"
mkdir -p "$out"
rm -f "$out/loss.png"  # of an earlier run

if [[ -n ${DATA:-} ]]; then
  text=$(from_here "$DATA")
else
  command -v bible >/dev/null || fail "no DATA=<text file> given, and the Debian package bible-kjv is not installed"
  text=$out/bible.txt
  # Without the verse numbers: "Ge1:1 In the beginning ..."
  bible -f 'gen1:1-rev22:21' | sed -E 's/^[A-Za-z0-9]+:[0-9]+ //' >"$text"
fi
[[ -f $text ]] || fail "DATA: $text: expected a text file"

readonly options=(--data "$text" --layers 4 --hidden 256 --heads 4 --kv-heads 2 --ffn 768 --batch 8 --seq 256
  --dtype bf16 --lr 5e-4)

# At most so many steps: over many more, the rounding of bf16 alone drives two runs apart. A demo that was stopped
# begins anew: its text or its minutes may have been others.
say "Training on $text ($(stat -Lc %s "$text") bytes)"
"$coda" train "${options[@]}" --out "$checkpoint" --overwrite --steps 250 --minutes "$(part 0.4)" --validate-every 50
steps=$(wc -l <"$checkpoint/log.jsonl")

say "The whole run again, with the programs and beside it with separate passes; then both in fp32"
"$coda" train "${options[@]}" --out "$out" --steps "$steps" --compare-unfused "$steps" --minutes "$(part 0.72)" \
  >"$out/comparison.txt"

if [[ -x $python ]] && "$python" -c 'import matplotlib' 2>/dev/null; then
  "$python" scripts/plot_loss.py "$checkpoint/log.jsonl" "$out/comparison.json" "$out/loss.png"
else
  echo "demo: no loss plot: matplotlib is not installed in .deps/venv (scripts/setup.sh python does it)" >&2
fi

say "Text from the model"
"$coda" generate "$checkpoint" --prompt 'And it came to pass' --tokens 500 --temperature 0.7 --seed 1

say "Fused against unfused"
cat "$out/comparison.txt"
last=$(grep validation_loss "$checkpoint/log.jsonl" | tail -n 1)
printf '\nvalidation loss %.4f nats per byte after %s steps\n' \
  "$(sed -E 's/.*"validation_loss":([0-9.eE+-]+).*/\1/' <<<"$last")" "$steps"
printf 'checkpoint %s, log %s/log.jsonl%s\n' "$checkpoint" "$checkpoint" "$([[ ! -f $out/loss.png ]] || echo ", plot $out/loss.png")"
