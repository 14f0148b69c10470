#!/usr/bin/env bash
# From a fresh Debian 12 to a report: installs packages (root or sudo), builds all programs, runs the quick suite, writes
# out/report. Failures in the suite are named; the report then has the rest, and this script ends with the suite's status.
set -euo pipefail
if [ $# -gt 0 ]; then  # whoever asks for --help does not want half an hour of work
  [ "$1" = --help ] || { echo "ci/quickstart.sh: unknown argument '$1'; allowed: --help" >&2; exit 2; }
  sed -n '2,/^[^#]/s/^# //p' "$0"
  exit 0
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."

began=$(date +%s)
step() { printf '\n\033[1m%s\033[0m (after %d s)\n' "$*" $(($(date +%s) - began)); }
log=build/quickstart.log
mkdir -p build out

# One run at a time: two would build and write in the same folders. The system's lock ends with this script and all that it
# has started; the file only names the process that has it.
exec {lock}>>build/quickstart.lock
if ! flock --nonblock "$lock"; then
  echo "ci/quickstart.sh: process $(<build/quickstart.lock) is at work in $PWD/out; wait until it has ended, or take another clone" >&2
  exit 6
fi
echo $$ >build/quickstart.lock
# quiet COMMAND...: its output goes to the log, which is shown when it fails.
quiet() {
  "$@" >"$log" 2>&1 || { tail -n 40 "$log"; echo "ci/quickstart.sh: failed: $* (full output: $log)" >&2; exit 1; }
}

# build COMMAND...: a build with ninja. Prints how far it is: one line that is rewritten on a terminal, else a line for each tenth.
# Each step counts as one, and steps that are left are expected to take as long as those that are done.
build() {
  local line finished all seconds percent minutes last=-10 text=""
  NINJA_STATUS='@%f %t %e@' "$@" 2>&1 | while IFS= read -r line; do
    if [[ ! $line =~ ^@([0-9]+)\ ([0-9]+)\ ([0-9]+) ]]; then  # a compiler's message
      [ ! -t 1 ] || printf '\n'
      printf '%s\n' "$line"
      continue
    fi
    finished=${BASH_REMATCH[1]} all=${BASH_REMATCH[2]} seconds=${BASH_REMATCH[3]}
    percent=$((100 * finished / all)) minutes=$(((seconds * (all - finished) / (finished + 1) + 59) / 60))
    text="  $percent % built, $seconds s; about $minutes min left"
    if [ -t 1 ]; then
      printf '\r%s\033[K' "$text"
      [ "$finished" -lt "$all" ] || echo
    elif [ $percent -ge $((last + 10)) ]; then
      last=$percent
      printf '%s\n' "$text"
    fi
  done
}

# Kernels for GPUs take nvcc as long as everything else takes: they are compiled only where there is a GPU to run them.
cuda=OFF
if nvidia-smi -L >/dev/null 2>&1; then
  cuda=AUTO
elif command -v nvcc >/dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  echo "nvcc is here, and no GPU: the programs are built without CUDA. With it: cmake --preset release -DLOCKSTEP_CUDA=ON"
fi

step "1/4 packages"
ci/install.sh build report
step "2/4 build"
quiet cmake --preset release -DLOCKSTEP_CUDA=$cuda
sed -n 's/^-- \(  [A-Z].*\)/\1/p' "$log"
build cmake --build --preset release --target programs
step "3/4 quick suite"
rm -rf out/records
suite=0
build/release/bin/suite --suite quick --out out/records || suite=$?
step "4/4 report"
/usr/bin/python3 -m reports out/records/*.jsonl -o out/report
printf '\nThe report, after %d s: %s\n' $(($(date +%s) - began)) "$PWD/out/report/index.html"
exit $suite
