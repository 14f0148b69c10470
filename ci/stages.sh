# shellcheck shell=bash
# Runs stages: sourced by ci/run.sh. A stage is a shell function stage_NAME whose output goes to a log; the terminal gets
# one line with its duration and its own messages (lines that begin with "== " in the log).
# The caller sets stage_logs (a folder) and stage_repeat (the command that repeats a stage, before its name).

stage_summary=""   # of the stages that ran: "ctest 12, pytest 3"
stage_closing=""   # and the closing lines of their test runners

seconds_now() { date +%s.%N; }
seconds_since() { awk -v a="$1" -v b="$(seconds_now)" 'BEGIN { printf "%.1f", b - a }'; }

# Text that a stage puts on its line in the terminal.
report() { echo "== $*"; }
close_with() { report "$*"; echo "=. $*"; }   # the same, and again at the end of the run: a test runner's closing line
count() { echo "=# $*"; }                  # count NAME NUMBER: a part of the summary

run_stage() {
  local name=$1 log=$stage_logs/$1.log start status
  start=$(seconds_now)
  printf '%-12s ' "$name"
  # A separate shell with -e in force, which it would not be in the condition of an if.
  set +e
  (set -euo pipefail; "stage_$name") >"$log" 2>&1
  status=$?
  set -e
  if [ $status -ne 0 ]; then
    printf 'FAILED  %s s\n' "$(seconds_since "$start")"
    echo "----- the last lines of $log"
    tail -n 60 "$log"
    echo "-----"
    echo "ci/run.sh: stage $name failed with status $status; repeat it with: $stage_repeat $name"
    return 1
  fi
  printf 'ok  %7s s  %s\n' "$(seconds_since "$start")" "$(sed -n 's/^== //p' "$log" | paste -sd ';' | sed 's/;/; /g')"
  local counts closing
  closing=$(sed -n 's/^=\. //p' "$log")
  [ -z "$closing" ] || stage_closing+="$name: $closing"$'\n'
  counts=$(sed -n 's/^=# //p' "$log" | paste -sd ',' | sed 's/,/, /g')
  [ -z "$counts" ] || stage_summary="${stage_summary:+$stage_summary, }$counts"
}
