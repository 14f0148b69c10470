#!/usr/bin/env bash
# From a fresh Debian 12 to a report: installs packages (root or sudo), builds, runs the quick suite, writes out/report.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

step() { printf '\n\033[1m%s\033[0m\n' "$*"; }
log=build/quickstart.log
mkdir -p build out
# quiet COMMAND...: its output goes to the log, which is shown when it fails.
quiet() {
  "$@" >"$log" 2>&1 || { tail -n 40 "$log"; echo "ci/quickstart.sh: failed: $* (all of it is in $log)" >&2; exit 1; }
}

step "1/4 packages"
ci/install.sh build report
step "2/4 build"
quiet cmake --preset release
sed -n 's/^-- \(  [A-Z].*\)/\1/p' "$log"
cmake --build --preset release --target suite
step "3/4 quick suite"
build/release/bin/suite --suite quick --out out/records
step "4/4 report"
/usr/bin/python3 -m reports out/records/*.jsonl -o out/report
echo
echo "The report: $PWD/out/report/index.html"
