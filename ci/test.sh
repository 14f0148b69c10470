#!/usr/bin/env bash
# Installs missing packages, builds, and runs the checks that must pass before a change is shown to others. CI (.ci/run) continues
# with checks that need their own builds: each source compiled alone, clang-tidy, sanitizers.
set -euo pipefail
CI_NAME=ci/test.sh exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" install format includes configure build ctest pytest gate
