#!/usr/bin/env bash
# Installs the Debian packages of the named groups (ci/packages.txt); nothing when all are there.
#   ci/install.sh build report [test] [peers]
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v apt-get >/dev/null || {
  echo "ci/install.sh: this system has no apt-get; allowed: Debian 12, or its container (docs/install.md)" >&2
  exit 1
}
[ $# -gt 0 ] || { echo "ci/install.sh: name at least one group: build, report, test, peers" >&2; exit 2; }

wanted=()
for group in "$@"; do
  mapfile -t names < <(awk -v g="$group" '!/^#/ && $2 == g { print $1 }' "$here/packages.txt")
  [ ${#names[@]} -gt 0 ] || { echo "ci/install.sh: no group '$group' in ci/packages.txt" >&2; exit 2; }
  wanted+=("${names[@]}")
done

missing=()
for name in "${wanted[@]}"; do
  dpkg-query -W -f='${Status}' "$name" 2>/dev/null | grep -q 'ok installed' || missing+=("$name")
done
[ ${#missing[@]} -eq 0 ] && exit 0

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || { echo "ci/install.sh: needs root or sudo to install: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
export DEBIAN_FRONTEND=noninteractive
echo "installing ${#missing[@]} packages: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
run_apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -y -qq -o Dpkg::Use-Pty=0 "$@" >>"$log" 2>&1; }
if ! { run_apt update && run_apt install --no-install-recommends "${missing[@]}"; }; then
  tail -n 20 "$log" >&2
  echo "ci/install.sh: apt-get failed; its last lines are above" >&2
  exit 1
fi
