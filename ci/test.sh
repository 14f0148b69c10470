#!/usr/bin/env bash
# Installs missing packages, builds, and runs the checks that must pass before a change is shown to others. CI (.ci/run) continues
# with checks that need their own builds: each source compiled alone, clang-tidy, sanitizers.
set -euo pipefail
if [ $# -gt 0 ]; then  # whoever asks for --help does not want half an hour of work
  [ "$1" = --help ] || { echo "ci/test.sh: unknown argument '$1'; allowed: --help" >&2; exit 2; }
  sed -n '2,/^[^#]/s/^# //p' "$0"
  exit 0
fi
CI_NAME=ci/test.sh exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" install format includes configure build ctest pytest gate
