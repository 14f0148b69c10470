#!/usr/bin/env bash
# Installs what is missing, builds, and runs everything that must be green: all stages of ci/run.sh.
set -euo pipefail
CI_NAME=ci/test.sh exec "$(dirname "${BASH_SOURCE[0]}")/run.sh"
