#!/usr/bin/env bash
# clang-tidy over the project's own .cpp files as the preset cpu compiles them, shellcheck, ruff. Prints what it finds.
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/.."

shellcheck .ci/run scripts/*.sh cmake/*.sh
.deps/venv/bin/ruff check -q .

# GCC's flags that clang does not know are no finding, and of clang's own warnings one is what .clang-tidy asks for.
log=build/cpu/clang-tidy.log
here=$(python3 -c 'import re, sys; print(re.escape(sys.argv[1]))' "$PWD") # it takes Python's regular expressions
run-clang-tidy -quiet -p build/cpu -j "${JOBS:-$(nproc)}" \
  -extra-arg=-Wno-unknown-warning-option -extra-arg=-Wno-error -extra-arg=-Wreserved-identifier \
  "^$here/(coda|examples)/.*\.cpp\$" >"$log" 2>&1 || {
  sed -i 's/\x1b\[[0-9;]*m//g' "$log"
  grep -E -A6 'warning:|error:' "$log" >&2 || cat "$log" >&2
  exit 1
}
grep -qF "$PWD/coda/" "$log" || {
  echo "lint: expected clang-tidy to look at the sources in $PWD, but $log names none of them" >&2
  exit 1
}
