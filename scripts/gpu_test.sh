#!/usr/bin/env bash
# Builds with the Hopper backend, runs all that tests it on this machine's GPU, and prints one total. The totals of whole
# runs go into results/<gpu>/tests.json.
#
#   gpu_test.sh [gtest arguments]     every test, `coda verify --all --backend sm90` and 300 random cases; and, if there are
#                                     none, the examples that are projects of their own, and the tests of the operators
#                                     where PYTHON (python3) has PyTorch
#   gpu_test.sh --fuzz CASES [SEED]   random cases only, spread over processes: seeds SEED (1) to SEED + CASES - 1
#   gpu_test.sh --reruns [COUNT]      each kernel COUNT (1000) times alone, then by two processes at once and under load
#   gpu_test.sh --sanitize [TOOL...]  each program's kernels under compute-sanitizer: memcheck racecheck synccheck, and
#                                     those between them under initcheck
#   gpu_test.sh --training [ARG...]   small models by pycoda and by plain PyTorch for 1000 steps: arguments of
#                                     tests/training/training.py
#   gpu_test.sh --mutation [ARG...]   seeded faults in the Hopper backend, which tests must catch: arguments of
#                                     tests/mutation/run_sm90.py
#
# CODA_TEST_SECONDS: how long the threads run (5). CODA_TEST_LIMIT: seconds after which a test counts as hung (600).
# CODA_PREBUILT=1: run build/cuda as it is. CODA_COMMIT: the commit to record, if this is not its git checkout. Logs lie in
# build/cuda/.
set -euo pipefail
CDPATH="" cd "$(dirname "$0")/.."
export PATH="$PATH:/usr/local/cuda/bin"
# The CPU's side of a test is short: few threads that wait asleep, beside those of other tests.
export OMP_WAIT_POLICY=passive OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}

fail() {
  echo "gpu_test: $1" >&2
  exit 1
}
command -v nvidia-smi >/dev/null || fail "no NVIDIA driver on this machine"
gpu=$(nvidia-smi --query-gpu=name,compute_cap --format=csv,noheader | head -n 1)
[[ $gpu == *" 9.0" ]] || fail "expected a Hopper GPU (compute capability 9.0), got $gpu"

tests=()
for source in tests/gpu/*_test.cpp; do tests+=("$(basename "$source" .cpp)"); done
logs=build/cuda

build() {
  [[ -z ${CODA_PREBUILT:-} ]] || return 0
  cmake --preset cuda >/dev/null
  cmake --build --preset cuda --target "$@" >"$logs/gpu_build.log" 2>&1 || {
    grep -E 'error|FAILED' "$logs/gpu_build.log" | head -n 20
    fail "the build failed: $logs/gpu_build.log"
  }
}
mkdir -p "$logs"

whole() { # whether these arguments leave nothing out
  case ${1:-} in
    "" | --fuzz | --reruns) return 0 ;;
    --sanitize | --training | --mutation) (($# == 1)) ;;
    *) return 1 ;;
  esac
}
if [[ -z ${CODA_RECORDED:-} ]] && whole "$@"; then
  export CODA_RECORDED=1
  status=0
  printed=$logs/gpu_test${1:-}.txt
  scripts/gpu_test.sh "$@" | tee "$printed" || status=$?
  # shellcheck source=scripts/gpu_common.sh
  source scripts/gpu_common.sh
  python3 scripts/record_tests.py "$gpu_results/tests.json" --device "$gpu_name" --driver "$gpu_driver" \
    --commit "$gpu_commit" <"$printed" || ((status = status ? status : 1))
  exit "$status"
fi

fuzz() {
  local cases=$1 first=$2 processes each from i pids=() logs_of=() without=() status=0
  processes=$(($(env -u OMP_NUM_THREADS nproc) / 2)) # nproc minds it
  ((processes = processes > 8 ? 8 : processes < 1 ? 1 : processes))
  each=$(((cases + processes - 1) / processes))
  for ((from = first; from < first + cases; from += each)); do
    ((each = each < first + cases - from ? each : first + cases - from))
    CODA_FUZZ_CASES=$each CODA_FUZZ_SEED=$from OMP_NUM_THREADS=1 build/cuda/tests/fuzz_test --gtest_brief=1 \
      >"$logs/fuzz_$from.log" 2>&1 &
    pids+=("$!") logs_of+=("$logs/fuzz_$from.log")
    without+=("fuzz: $each cases, 0 fused, 0 outputs, $each failed, seeds $from to $((from + each - 1)): ended early")
  done
  for i in "${!pids[@]}"; do
    wait "${pids[i]}" || status=1
    grep -vE '^\[|^Running|^Note|^$' "${logs_of[i]}" || true
    grep -q '^fuzz: ' "${logs_of[i]}" || { echo "${without[i]}: ${logs_of[i]}" && status=1; }
  done
  return "$status"
}

# The same bits in each run, idle and under load, and in three processes.
reruns() {
  local test=build/cuda/tests/reruns_test logs_of=() pids=() status=0 log hashes
  local idle=$logs/reruns_idle.log
  export CODA_RERUNS=$1
  "$test" --gtest_brief=1 --gtest_filter='*WhileIdle' >"$idle" 2>&1 || status=1
  logs_of=("$idle" "$logs/reruns_load_1.log" "$logs/reruns_load_2.log")
  for log in "${logs_of[@]:1}"; do
    "$test" --gtest_brief=1 --gtest_filter='*UnderLoad' >"$log" 2>&1 &
    pids+=("$!")
  done
  for pid in "${pids[@]}"; do wait "$pid" || status=1; done
  for log in "${logs_of[@]}"; do
    grep -q '^reruns: ' "$log" || fail "it ended early: $log"
    grep -E '^reruns: |Failure' "$log"
  done
  hashes=$(grep -hE '^hash: ' "${logs_of[@]}" | sort -u)
  local kernels differ
  kernels=$(grep -cE '^hash: ' "$idle")
  differ=$(($(wc -l <<<"$hashes") - kernels))
  echo "processes: 3, $kernels hashes each, $differ differ"
  ((differ == 0)) || cut -d' ' -f3- <<<"$hashes" | sort | uniq -d | head -n 20
  return $((status || differ != 0))
}

# Each program's kernels once, with many tiles to a thread block, and the kernels between them. A matrix has an allocation
# of its own size, so that the tool sees each access outside of it. With many tiles racecheck reports the slabs that a
# GLU's backward hands on from team to team: there one lane arrives at the barrier for its warp, after __syncwarp(). With
# each lane arriving for itself it reported nothing, so we take these reports for false. It also reports kernels of
# cuBLASLt's (nvjet_*), which are counted apart. Told to watch ours alone (--kernel-name), it failed with an error of its
# own.
sanitize_with() { # sanitize_with <tool> <log>
  local tool=$1 status=0
  local watch=(compute-sanitizer --tool "$tool" "${extra[@]}" --print-limit 1000)
  [[ $tool == racecheck ]] || watch+=(--error-exitcode 9) # whose kernels it reports is looked at below
  if [[ $tool == initcheck ]]; then
    # It does not see what the bulk copy engine writes, and reports each read of such memory: of all products.
    "${watch[@]}" build/cuda/tests/kernels_test --gtest_brief=1 || status=1
    "${watch[@]}" build/cuda/tests/kernel_capture_test --gtest_brief=1 || status=1
    return "$status"
  fi
  local programs=
  [[ $tool != racecheck ]] || programs=-gemm_glu_backward
  "${watch[@]}" build/cuda/tests/programs_test --gtest_brief=1 \
    --gtest_filter='Programs.HoldTheBound*:Programs.WithoutAProduct*' || status=1
  CODA_TEST_PROGRAMS=$programs \
    "${watch[@]}" build/cuda/tests/programs_test --gtest_brief=1 --gtest_filter='Programs.AreExact*' || status=1
  "${watch[@]}" build/cuda/tests/split_test --gtest_brief=1 || status=1
  "${watch[@]}" build/cuda/tests/kernels_test --gtest_brief=1 || status=1
  "${watch[@]}" build/cuda/tests/kernel_capture_test --gtest_brief=1 || status=1
  [[ $tool != memcheck ]] || # wrong indices, too, must not lead outside
    "${watch[@]}" build/cuda/tests/extremes_test --gtest_brief=1 --gtest_filter='BadIndices.*' || status=1
  return "$status"
}
sanitize() {
  local tool log jobs=() status=0 more races in_cublaslt bad
  export CODA_TEST_SMALL=1 CODA_TEST_SEPARATE_BUFFERS=1
  for tool in "$@"; do
    # A test copies back elements that no call writes, such as the logit of a target that is none.
    local extra=()
    [[ $tool != initcheck ]] || extra=(--check-api-memory-access no)
    log=$logs/sanitize_$tool.log
    sanitize_with "$tool" >"$log" 2>&1 &
    jobs+=("$!:$tool:$log")
  done
  for job in "${jobs[@]}"; do
    wait "${job%%:*}" || status=1
    log=${job##*:} tool=${job#*:} tool=${tool%%:*} more=
    if [[ $tool == racecheck ]]; then
      races=$(grep -c 'Race reported' "$log" || true) in_cublaslt=$(grep -c 'Race reported.* at nvjet_' "$log" || true)
      more="; $in_cublaslt of them in cuBLASLt's kernels"
      ((races == in_cublaslt)) || status=1
    fi
    bad=$(grep -c "process didn't terminate successfully" "$log" || true)
    ((bad == 0)) || more+="; $bad programs ended badly"
    echo "$tool: $(grep -E '^\[  (PASSED|FAILED)|SUMMARY' "$log" | tr -s ' =' ' ' | paste -sd ';')$more"
  done
  return "$status"
}

case ${1:-} in
  --fuzz)
    [[ ${2:-} =~ ^[0-9]+$ ]] || fail "--fuzz: expected a number of cases, got '${2:-}'"
    build fuzz_test
    fuzz "$2" "${3:-1}"
    exit
    ;;
  --reruns)
    [[ ${2:-1000} =~ ^[0-9]+$ ]] || fail "--reruns: expected a number, got '$2'"
    build reruns_test
    reruns "${2:-1000}"
    exit
    ;;
  --training)
    shift
    build coda_torch_package
    PYTHONPATH=$PWD/build/cuda/python exec "${PYTHON:-python3}" tests/training/training.py torch --device cuda "$@"
    ;;
  --mutation)
    shift
    exec python3 tests/mutation/run_sm90.py "$@"
    ;;
  --sanitize)
    shift
    command -v compute-sanitizer >/dev/null || fail "no compute-sanitizer on this machine"
    build programs_test split_test kernels_test kernel_capture_test extremes_test
    if (($# == 0)); then set -- memcheck racecheck synccheck initcheck; fi
    sanitize "$@"
    exit
    ;;
esac

build "${tests[@]}" coda_cli
operators="" python=${PYTHON:-python3}
if (($# == 0)) && grep -q libcoda_torch build/cuda/build.ninja; then
  build coda_torch_package
  operators=yes
fi
run() { # run <name> <command...>: its output and its exit status
  local name=$1 status=0
  shift
  timeout "${CODA_TEST_LIMIT:-600}" "$@" >"$logs/$name.log" 2>&1 || status=$?
  echo "$status" >"$logs/$name.status"
}
# Several at once: most of the time goes into references on the CPU.
rm -f "$logs"/*.status "$logs"/torch_*_test.log
jobs=()
start() {
  while (($(jobs -rp | wc -l) >= 4)); do wait -n || true; done
  run "$@" &
  jobs+=("$1")
}
if (($# == 0)); then
  start examples ctest --test-dir build/cuda --output-on-failure -R '^consumer\.(install|hopper|pytorch_program)$'
  start verify build/cuda/coda verify --all --backend sm90
fi
if [[ -n $operators ]]; then
  for source in tests/torch/*_test.py; do
    start "torch_$(basename "$source" .py)" env PYTHONPATH="$PWD/build/cuda/python" "$python" "$source"
  done
fi
start_each() { # start_each <test>: its cases in processes of their own
  local name names
  names=$(build/cuda/tests/"$1" --gtest_list_tests | sed -nE 's/^  ([^ ]+).*/\1/p') || true
  [[ -n $names ]] || fail "$1 lists no tests"
  for name in $names; do
    start "${1%_test}_${name##*/}" build/cuda/tests/"$1" --gtest_brief=1 --gtest_filter="*.$name"
  done
}
for name in "${tests[@]}"; do
  case "$name $#" in
    "first_call_test 0") ;;
    "programs_test 0") start_each "$name" ;; # one after the other they take longer than all others
    *) start "$name" build/cuda/tests/"$name" --gtest_brief=1 "$@" ;;
  esac
done
(($# > 0)) || start_each first_call_test
wait

# What unittest printed of the operators' tests: "Ran 17 tests in 4 s" and "OK (skipped=3)" or "FAILED (errors=1)".
unittests() {
  local logs_of=("$logs"/torch_*_test.log)
  local word counts=()
  for word in "Ran " failures= errors= "unexpected successes=" skipped=; do
    counts+=("$({ grep -hoE "(^|[( ])${word}[0-9]+" "${logs_of[@]}" || true; } | awk -F'[ =(]' '{n += $NF} END {print n + 0}')")
  done
  local failed=$((counts[1] + counts[2] + counts[3]))
  echo "torch: ${counts[0]} run, $((counts[0] - failed - counts[4])) passed, $failed failed, ${counts[4]} skipped"
}

ran=0 passed=0 skipped=0 broken=() verify="not run" examples=""
count() { # count <beginning> <log>: the number in a line of GoogleTest's summary, 0 if there is none
  sed -nE "s/^\[$1\] ([0-9]+) tests?\b.*/\1/p" "$2" | grep -v 'Running' | tail -n 1 | grep . || echo 0
}
for name in "${jobs[@]}"; do
  log=$logs/$name.log
  good=$([[ $(<"$logs/$name.status") == 0 ]] && echo yes || echo no)
  if [[ $name == verify ]]; then
    verify=$(grep -E 'outputs of [0-9]+ cases' "$log" || echo "ended early: $log")
    [[ $good == yes ]] || { broken+=("coda verify") && grep -m 20 FAILED "$log"; } || true
    continue
  fi
  if [[ $name == examples ]]; then
    examples="$(grep -cE '^ *[0-9]+/[0-9]+ Test .*consumer\.(hopper|pytorch_program)' "$log" || true) projects built and run,"
    examples+=" $(grep -cE '^ *[0-9]+/[0-9]+ Test .*consumer\.(hopper|pytorch_program) .*Passed' "$log" || true) passed"
    [[ $good == yes && $examples != 0\ * ]] || { broken+=("examples") && tail -n 60 "$log"; } || true
    continue
  fi
  if [[ $name == torch_* ]]; then
    [[ $good == yes ]] || { broken+=("$name") && grep -vE -m 60 '^$' "$log"; } || true
    continue
  fi
  [[ $good == yes ]] || grep -vE -m 40 '^Running|^Note|^hash: |^$' "$log" || true
  # It ended before its summary, or badly after one that tells of no failure.
  { grep -qE '^\[=+\].* ran\.' "$log" && { [[ $good == yes ]] || grep -q '^\[  FAILED  \]' "$log"; }; } || broken+=("$name")
  ran=$((ran + $(count '=+' "$log"))) passed=$((passed + $(count '  PASSED  ' "$log")))
  skipped=$((skipped + $(count '  SKIPPED ' "$log")))
done
failed=$((ran - passed - skipped))
echo "tests: $ran run, $passed passed, $failed failed, $skipped skipped"
echo "verify: $verify"
[[ -z $operators ]] || unittests
[[ -z $examples ]] || echo "examples: $examples"
if (($# == 0)); then
  cat "$logs"/first_call_*.status | awk '$1 == 0 {good++} END {
    printf "first calls: %d operations, each captured as the first of a process and replayed 1000 times: %d with the same bits\n", NR, good}'
fi
figures='^(fuzz|bad calls|edge cases|threads|reruns): '
for name in "${jobs[@]}"; do grep -hE "$figures" "$logs/$name.log" || true; done
((${#broken[@]} == 0)) || echo "broken: $(printf '%s\n' "${broken[@]}" | paste -sd ',')"
((failed == 0 && ${#broken[@]} == 0))
