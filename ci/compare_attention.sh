#!/usr/bin/env bash
# Compares Lockstep's attention with PyTorch's scaled_dot_product_attention on the CPU, alternating on the same two cores.
#   ci/compare_attention.sh [BUILD=build/release] [FLAGS of ci/compare_attention.py]
# Environment: TORCH (a Python that has PyTorch; else one is made under build/, with the newest that pip installs).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$PWD/build/release
if [ $# -gt 0 ] && [ "${1#--}" = "$1" ]; then build=$PWD/$1 && shift; fi

fail() { echo "ci/compare_attention.sh: $*" >&2; exit 1; }
[ -f "$build/CMakeCache.txt" ] || cmake --preset release -B "$build" >/dev/null
log=$build/compare_attention.log
cmake --build "$build" --target attention_loop >"$log" || { tail -n 20 "$log" >&2; fail "the build failed"; }

torch=${TORCH:-build/torch/bin/python}
if [ ! -x "$torch" ]; then
  /usr/bin/python3 -m venv build/torch && build/torch/bin/pip install --quiet torch numpy >"$log" 2>&1 ||
    { tail -n 5 "$log" >&2; fail "PyTorch cannot be installed; set TORCH to a Python that has it"; }
fi
exec env OMP_NUM_THREADS=2 OMP_PROC_BIND=true OMP_PLACES=cores taskset -c 0,1 "$torch" ci/compare_attention.py \
  "$build/bin/attention_loop" "$@"
