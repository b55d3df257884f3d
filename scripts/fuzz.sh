#!/usr/bin/env bash
# Lets libFuzzer make calls of the interface for C, from the calls that the tests of bad input begin with.
# usage: scripts/fuzz.sh SECONDS     (build/fuzz is built; JOBS processes)
# Prints how many calls there were. What broke a promise, or ended a process, is kept in build/fuzz/found/.
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/../build/fuzz"

mkdir -p seeds corpus found
for test in bad_input bad_input_backward bad_input_layer; do
  CODA_FUZZ_SEEDS=seeds "tests/${test}_test" --gtest_brief=1 >seeds.log || {
    cat seeds.log
    exit 1
  }
done
export OMP_NUM_THREADS=1 UBSAN_OPTIONS=print_stacktrace=1
status=0
tests/c_interface_fuzzer corpus seeds -max_total_time="$1" -max_len=16384 -len_control=0 -timeout=20 -rss_limit_mb=4096 \
  -fork="${JOBS:-1}" -artifact_prefix=found/ -print_final_stats=1 >fuzz.log 2>&1 || status=$?
grep -E '^fuzz: |ERROR: |SUMMARY: |runtime error: ' fuzz.log | sort | uniq -c | head -n 20 || true
calls=$(grep -oE '^#[0-9]+' fuzz.log | tail -n 1 | tr -d '#')
echo "fuzz: ${calls:-0} calls in $1 s from $(find seeds -type f | wc -l) seeds," \
  "$(find corpus -type f | wc -l) kept, $(find found -type f | wc -l) that broke a promise"
exit "$status"
