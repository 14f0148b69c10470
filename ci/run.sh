#!/usr/bin/env bash
# Runs CI's stages, all or those named, in this order; stops at the first that fails and prints how to repeat it.
#   ci/run.sh                  all stages
#   ci/run.sh build ctest      these
#   ci/run.sh --list           their names
# With CI_END (seconds since 1970), a stage that would not end by then on a slow machine is left out, and the last line
# reports it, as a killed run could not.
# Up to `gate` they are ci/test.sh, which everybody runs; CI runs the others after it.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
source ci/stages.sh
stage_logs=$root/build/ci-logs
stage_repeat="$root/ci/run.sh"
mkdir -p "$stage_logs"
python=/usr/bin/python3   # Debian's, which has the packages that ci/install.sh installs

stages=(install format includes configure build ctest pytest gate asan tidy tsan alone)

stage_install() { ci/install.sh build report test peers; }

stage_configure() {
  cmake --preset ci
  report "backends of preset ci: $(sed -nE 's/^--   ([A-Z]+) +(ON|OFF) .*/\1 \2/p' "$stage_logs/configure.log" | tail -n 3 | paste -sd ' ')"
}

stage_build() {
  cmake --build --preset ci
}

stage_format() {
  local files
  mapfile -t files < <("$python" ci/source_tree.py)
  clang-format-14 --dry-run -Werror "${files[@]}"
  report "${#files[@]} files"
}

stage_includes() {
  "$python" ci/check_includes.py
  report "$(tail -n 1 "$stage_logs/includes.log")"
  "$python" ci/check_words.py
  report "$(tail -n 1 "$stage_logs/includes.log")"
}

# run_ctest NAME PRESET arguments: runs ctest in a build folder; its closing line becomes the stage's line.
run_ctest() {
  local name=$1 folder=build/$2 log=$stage_logs/$1.log
  shift 2
  ctest --test-dir "$folder" --parallel 2 --output-on-failure --no-tests=error "$@"
  close_with "$(grep -E '[0-9]+% tests passed' "$log")"
  local skipped
  skipped=$(grep -cE '\*\*\*Skipped' "$log" || true)
  [ "$skipped" -eq 0 ] || report "$skipped skipped (need a GPU)"
  count "$name $(sed -nE 's/.*tests failed out of ([0-9]+)/\1/p' "$log")"
}

stage_ctest() { run_ctest ctest ci; }

stage_pytest() {
  "$python" -m pytest -q --numprocesses 2 --dist loadfile tests reports ci compare
  close_with "$(tail -n 1 "$stage_logs/pytest.log")"
  count "pytest $(sed -nE 's/^([0-9]+) passed.*/\1/p' "$stage_logs/pytest.log" | tail -n 1)"
}

# Compares exactly repeating values with the repository's. After an intended change, run the same command with --update.
stage_gate() {
  "$python" ci/gate.py exact --base ci/gate_baseline.jsonl --head build/ci --undecided fail
  close_with "$(tail -n 1 "$stage_logs/gate.log")"
}

# Preset dev compiles each source alone, and so its compile_commands.json has them all.
stage_alone() {
  cmake --preset dev
  "$python" ci/check_alone.py --build build/dev
  report "$(tail -n 1 "$stage_logs/alone.log")"
}

stage_tidy() {
  cmake --preset dev
  "$python" ci/tidy.py --build build/dev
  report "$(tail -n 1 "$stage_logs/tidy.log")"
}

stage_asan() {
  cmake --preset asan
  cmake --build --preset asan --target tests_sanitized
  run_ctest asan asan --label-exclude '^(slow|gpu)$'
}

stage_tsan() {
  cmake --preset tsan
  cmake --build --preset tsan --target tests_ranks
  run_ctest tsan tsan --label-regex '^ranks$' --label-exclude '^slow$'
}

[ "${1-}" != --list ] || { printf '%s\n' "${stages[@]}"; exit 0; }
for name in "$@"; do
  [[ " ${stages[*]} " == *" $name "* ]] || { echo "ci/run.sh: no stage '$name'; allowed: ${stages[*]}" >&2; exit 2; }
done

# Seconds that these stages take on two slow cores.
declare -A stage_seconds=([asan]=1500 [tidy]=900 [tsan]=800 [alone]=1000)

# Two runs at once would build in the same folders. Processes that a stage leaves behind do not hold the lock.
lock_builds() {
  [ -z "${has_lock-}" ] || return 0
  exec 9>>"$stage_logs/lock"
  flock --nonblock 9 || { echo "ci/run.sh: another run is building in $root/build; allowed: one at a time" >&2; exit 2; }
  has_lock=1
}

start=$(seconds_now)
left_out=""
for name in "${stages[@]}"; do
  [ $# -eq 0 ] || [[ " $* " == *" $name "* ]] || continue
  if [ -n "${CI_END-}" ] && [ $(($(date +%s) + ${stage_seconds[$name]-0})) -gt "$CI_END" ]; then
    printf '%-12s left out: it takes up to %d s, and %d s are left\n' "$name" "${stage_seconds[$name]}" $((CI_END - $(date +%s)))
    left_out+=" $name"
  else
    lock_builds
    run_stage "$name" 9>&-
  fi
done
printf '%s' "$stage_closing"
echo "${CI_NAME:-ci/run.sh}: passed${stage_summary:+: $stage_summary} in $(seconds_since "$start") s${left_out:+, without$left_out}"
