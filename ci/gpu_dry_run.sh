#!/usr/bin/env bash
# Runs ci/gpu_check.sh on a machine without a GPU: every program of the bundle starts, with stand-ins for CUDA's runtime, cuBLASLt
# and NCCL (testing/cuda_stand_in) in place of the libraries. They compute nothing, but refuse what a driver refuses.
#   ci/gpu_dry_run.sh OUT [STEP...]    OUT: as of ci/gpu_check.sh
# Environment: BUILD (build/gpu), the build folder, which makes the stand-ins; BUNDLE (build/gpu-bundle, which ci/gpu_build.sh makes
# from it), or empty: the programs as they are in BUILD, of which it is not known what ptxas gave each kernel; LIST; see gpu_check.sh.
# Status: of ci/gpu_check.sh.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bundle=${BUNDLE-build/gpu-bundle} build=${BUILD:-build/gpu}
fail() { echo "ci/gpu_dry_run.sh: $*" >&2; exit 2; }
[ $# -ge 1 ] || fail "needs OUT, a folder for the log and the page"
[ -z "$bundle" ] || [ -f "$bundle/needs.txt" ] || fail "$bundle is no bundle; ci/gpu_build.sh makes one"

# The bundle, and the facts that ptxas states in its kernels' code.
from_bundle() {
  cp -al "$bundle/." "$dry"
  find "$bundle/bin" "$bundle/tests" "$bundle/lib" -type f -print0 | xargs -0 ci/kernel_facts.py >"$dry/stand_in.txt"
  grep -q . "$dry/stand_in.txt" || fail "no kernels were found in $bundle"
}

from_build() {
  mkdir "$dry/lib"
  cp -r ci compare "$dry"
  ln -s "$(realpath "$build")"/{bin,tests} "$dry"
  echo 'bin/all_reduce_perf libnccl.so.2?' >"$dry/needs.txt"
  touch "$dry/stand_in.txt"
}

cmake --build "$build" --target stand_in_libraries >/dev/null
dry=$(mktemp -d "$(dirname "${bundle:-$build/programs}")/gpu-dry-XXXXXX")
trap 'rm -rf "$dry"' EXIT
if [ -n "$bundle" ]; then from_bundle; else from_build; fi
for library in "$build"/stand_in/*.so.*; do
  rm -f "$dry/lib/$(basename "$library")"
  cp "$library" "$dry/lib/"
done
mkdir "$dry/cuda"
ln -s ../lib "$dry/cuda/lib64"  # where the script finds NCCL's version
CUDA_FOLDERS=$dry/cuda "$dry/ci/gpu_check.sh" "$dry" "$@"
