#!/usr/bin/env bash
# All tests of masu; see usage below.
# shellcheck disable=SC2317  # steps are called by name
set -euo pipefail

usage() {
  cat <<'TEXT'
usage: ./test.sh [--all] [--only STEP[,STEP...]] [--help]

Installs what is missing (as root or with sudo), builds, and runs every test. Steps:

  format     clang-format on all sources
  layers     tools/check_layers.py
  shell      shellcheck on all scripts
  build      the release preset with its tests
  unit       unit tests (ctest)
  e2e        end-to-end tests (pytest tests/e2e) against build/release/masu
  tidy       clang-tidy; files that did not change since they passed are not checked again
  asan       unit tests of the layers that handle memory and foreign bytes, with ASan and UBSan
  tsan       unit tests of the layers that have threads, with TSan

  --all      adds fuzz (a minute for each target, or MASU_FUZZ_SECONDS), soak (pytest marked soak, gtest *Soak*), bench and
             lm_eval (ARC by lm-evaluation-harness against the server, compared with masu eval; twenty minutes on two cores)
  --only     runs only these steps, and build before those that need it
  --help     prints this

Environment: MASU_TEST_DATA  folder with golden data, default ../shared; tests that need it are
                             skipped and named when it is not there
             MASU_HOME       folder for the model, default ~/.cache/masu
             MASU_FUZZ_SECONDS  how long each fuzz target runs, default 60
TEXT
}
say() { printf 'masu: %s\n' "$*"; }
die() {
  printf 'masu: %s\n' "$*" >&2
  exit 1
}

readonly asan_layers='backend|kv|checkpoint|text|engine|server'
readonly tsan_layers='kv|engine|server'
readonly fuzz_seconds=${MASU_FUZZ_SECONDS:-60}
steps=(format layers shell build unit e2e tidy asan tsan)
more_steps=(fuzz soak bench lm_eval)

all=0 only=''
while (($#)); do
  case $1 in
    --all) all=1 ;;
    --only)
      (($# > 1)) || die "--only needs a step; see ./test.sh --help"
      only=$2
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) die "unknown argument '$1'; see ./test.sh --help" ;;
  esac
  shift
done
if [[ -n $only ]]; then
  IFS=, read -ra chosen <<<"$only"
  for step in "${chosen[@]}"; do
    [[ " ${steps[*]} ${more_steps[*]} " == *" $step "* ]] || die "unknown step '$step'; see ./test.sh --help"
  done
  steps=("${chosen[@]}")
  # These run on what the build left, which must not be of yesterday.
  if [[ ,$only, =~ ,(unit|e2e|tidy|soak|bench|lm_eval), && ,$only, != *,build,* ]]; then steps=(build "${steps[@]}"); fi
elif ((all)); then
  steps+=("${more_steps[@]}")
fi

cd "$(dirname "${BASH_SOURCE[0]}")"
readonly results=$PWD/build/test-results
rm -rf "$results"
mkdir -p "$results"

# --- each step is a function of this name; 77 means "not run", and $results/why says why -------------------------

sources() { # tracked files and new ones that match the patterns
  if git rev-parse --git-dir >/dev/null 2>&1; then
    git ls-files -z --cached --others --exclude-standard -- "$@"
  else
    find . -name build -prune -o -name .venv -prune -o -type f -name "${1##*/}" -print0
  fi | while IFS= read -r -d '' file; do [[ ! -f $file ]] || printf '%s\0' "$file"; done
}

not_run() {
  printf '%s' "$*" >"$results/why"
  return 77
}

format() {
  { sources '*.h'; sources '*.cc'; sources '*.cu'; sources '*.cuh'; } |
    xargs -0 -r clang-format --dry-run -Werror
}

layers() { tools/check_layers.py; }

shell() {
  command -v shellcheck >/dev/null || { not_run "shellcheck is not installed"; return; }
  { sources '*.sh'; printf '.ci/run\0'; } | xargs -0 shellcheck
}

build() { tools/build.sh release -DMASU_TESTS=ON; }

run_ctest() { # step, preset, then what goes before and after ctest's own arguments
  local step=$1 preset=$2 pattern=$3
  shift 3
  mkdir -p "$results/$step"
  GTEST_OUTPUT="xml:$results/$step/" "$@" ctest --test-dir "build/$preset" -R "$pattern" \
    --output-on-failure --timeout 600 --no-tests=error --output-junit "$results/$step/ctest.junit"
}

unit() { run_ctest unit release . env; }

run_pytest() { # step, then arguments of pytest
  local step=$1 status=0
  shift
  mkdir -p "$results/$step"
  .venv/bin/python -m pytest -c tests/pytest.ini --rootdir . -p no:cacheprovider --timeout 600 -q -ra \
    --junitxml "$results/$step/pytest.xml" "$@" tests/e2e || status=$?
  ((status != 5)) || { not_run "no test is marked for it"; return; }
  return "$status"
}

e2e() { run_pytest e2e -m 'not soak'; }

tidy() {
  local status=0
  tools/run_clang_tidy.py --budget 420 || status=$?
  ((status != 77)) || { not_run "not all files were reached in time; they are named above"; return; }
  return "$status"
}

run_sanitized() { # step and preset, layers, then what goes before ctest
  local preset=$1 layers=$2 layer targets=()
  shift 2
  for layer in ${layers//|/ }; do
    [[ -z $(find "src/$layer" -name '*_test.cc' -print -quit 2>/dev/null) ]] || targets+=("${layer}_test")
  done
  ((${#targets[@]})) || { not_run "none of its layers has unit tests"; return; }
  tools/build.sh "$preset" "${targets[@]}" && run_ctest "$preset" "$preset" "^($layers)\$" "$@"
}

asan() {
  run_sanitized asan "$asan_layers" env ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1
}

tsan() {
  # g++ 12's TSan stops when the kernel spreads addresses widely; without randomisation it runs everywhere.
  local fixed=(env)
  if setarch "$(uname -m)" -R true 2>/dev/null; then fixed=(setarch "$(uname -m)" -R env); fi
  run_sanitized tsan "$tsan_layers" "${fixed[@]}" TSAN_OPTIONS=halt_on_error=1
}

fuzz() {
  local name names
  compgen -G 'fuzz/*_fuzz.cc' >/dev/null || { not_run "there is no fuzz target"; return; }
  mapfile -t names < <(basename -s .cc fuzz/*_fuzz.cc)
  tools/build.sh fuzz "${names[@]}" || return
  for name in "${names[@]}"; do
    say "fuzzing $name for $fuzz_seconds s"
    mkdir -p "build/corpus/$name"
    "build/fuzz/fuzz/$name" -max_total_time="$fuzz_seconds" -rss_limit_mb=2048 -timeout=20 -print_final_stats=1 \
      -artifact_prefix="$results/" "build/corpus/$name" 2>"$results/$name.log" ||
      { tail -n 40 "$results/$name.log"; return 1; }
    grep -E 'stat::number_of_executed_units' "$results/$name.log" || true
  done
}

soak() {
  local program
  mkdir -p "$results/soak"
  for program in build/release/*_test; do
    [[ -x $program ]] || continue
    GTEST_OUTPUT="xml:$results/soak/" "$program" --gtest_also_run_disabled_tests --gtest_filter='*Soak*' || return 1
  done
  run_pytest soak -m soak
}

bench() { # what they print are the figures, what they return is the verdict
  local program
  say "masu bench integrity"
  "$MASU_BINARY" bench integrity "$MASU_TEST_MODEL" || return 1
  for program in bench/*.py; do
    [[ -x $program && -f $program ]] || continue
    say "$program"
    .venv/bin/python "$program" --model "$MASU_TEST_MODEL" || return 1
  done
}

lm_eval() {
  local data=$MASU_TEST_DATA/data/eval task
  for task in arc_easy arc_challenge; do
    [[ -f $data/$task.jsonl ]] || { not_run "$data/$task.jsonl is not there"; return; }
  done
  bench/lm_eval/run.sh --model "$MASU_TEST_MODEL" --data "$data"
}

# --- running them -------------------------------------------------------------------------------------------------

heading() { printf '\n=== %s ===\n' "$*"; }

prepare() {
  heading "prepare"
  tools/install_packages.sh --tests 2>&1
  local wanted
  wanted=$(sha256sum <tests/requirements.txt)
  if [[ $(cat .venv/requirements.sha256 2>/dev/null) == "$wanted" ]] && .venv/bin/python -c '' 2>/dev/null; then
    say "Python packages: .venv is up to date"
  else
    say "Python packages: installing tests/requirements.txt into .venv"
    python3 -m venv --clear .venv
    .venv/bin/python -m pip install --disable-pip-version-check -q -r tests/requirements.txt
    printf '%s\n' "$wanted" >.venv/requirements.sha256
  fi
  MASU_TEST_MODEL=$(tools/fetch_model.sh)
  MASU_BINARY=$PWD/build/release/masu
  MASU_TEST_DATA=$(realpath -m "${MASU_TEST_DATA:-../shared}")
  export MASU_TEST_MODEL MASU_BINARY MASU_TEST_DATA
  if [[ -d $MASU_TEST_DATA ]]; then
    say "golden data: $MASU_TEST_DATA"
  else
    say "golden data: $MASU_TEST_DATA is not there; tests that need it are skipped and named at the end"
  fi
}

run_step() {
  local step=$1 started=$SECONDS status=0 state why
  heading "$step"
  rm -f "$results/why"
  # Not in a condition: a step is its own shell with errexit on.
  set +e
  (set -e; "$step") 2>&1
  status=$?
  set -e
  why=$(cat "$results/why" 2>/dev/null || true)
  case $status in
    0) state=passed ;;
    77) state=skipped ;;
    *) state=failed why="status $status" ;;
  esac
  printf '%s\t%s\t%s\t%s\n' "$step" "$state" "$((SECONDS - started))" "$why" >>"$results/steps.tsv"
  say "$step: $state in $((SECONDS - started)) s${why:+ ($why)}"
}

prepare
for step in "${steps[@]}"; do
  if [[ $step =~ ^(unit|e2e|soak|bench|lm_eval)$ ]] && grep -q $'^build\tfailed' "$results/steps.tsv" 2>/dev/null; then
    printf '%s\tskipped\t0\t%s\n' "$step" "the build failed" >>"$results/steps.tsv"
    continue
  fi
  run_step "$step"
done

heading "summary after $SECONDS s"
exec tools/summarize_tests.py "$results"
