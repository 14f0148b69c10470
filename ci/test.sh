#!/usr/bin/env bash
# Installs what is missing, builds, and runs what must be green before a change is shown to others. CI (.ci/run) goes on with
# what is read and built for checks alone: each source by itself, clang-tidy, sanitizers.
set -euo pipefail
CI_NAME=ci/test.sh exec "$(dirname "${BASH_SOURCE[0]}")/run.sh" install format includes configure build ctest pytest gate
