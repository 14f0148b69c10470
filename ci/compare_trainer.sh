#!/usr/bin/env bash
# Compares mini_train with PyTorch on the CPU, eager and compiled (torch.compile), of which the faster counts: the same models,
# batches and dtypes, alternating on the same two cores.
#   ci/compare_trainer.sh [BUILD=build/release] [OUT=out/compare_trainer]
# Environment: ROUNDS (3), STEPS of a run (12 and 6), CASES ("a b"), DTYPES ("f32 bf16"), GEMM (probe; --gemm), TORCH (a Python that has PyTorch; else one is made
# under build/, with the newest that pip installs).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$PWD/${1:-build/release} out=${2:-out/compare_trainer}
rounds=${ROUNDS:-3} cases=${CASES:-a b} dtypes=${DTYPES:-f32 bf16}
rm -rf "$out"
mkdir -p "$out"
log=$out/log

fail() { echo "ci/compare_trainer.sh: $*" >&2; exit 1; }
[ -f "$build/CMakeCache.txt" ] || cmake --preset release -B "$build" >/dev/null
cmake --build "$build" --target mini_train >"$log" || { tail -n 20 "$log" >&2; fail "the build failed"; }

torch=${TORCH:-build/torch/bin/python}
if [ ! -x "$torch" ]; then
  /usr/bin/python3 -m venv build/torch && build/torch/bin/pip install --quiet torch numpy >"$log" 2>&1 ||
    { tail -n 5 "$log" >&2; fail "PyTorch cannot be installed; set TORCH to a Python that has it"; }
fi

# Two threads on two cores, each on its own. oneDNN and MKL take the widest instructions that the processor has.
cores="taskset -c 0,1"
peer_environment="OMP_NUM_THREADS=2 OMP_PROC_BIND=true OMP_PLACES=cores KMP_AFFINITY=granularity=fine,compact,1,0"

shape_of() {
  case $1 in
    a) echo "--layers 4 --hidden 256 --heads 4 --vocabulary 256 --length 128 --batch 8 --threads 2 --steps ${STEPS:-12}" ;;
    b) echo "--layers 12 --hidden 768 --heads 12 --vocabulary 50257 --length 64 --batch 4 --threads 2 --steps ${STEPS:-6}" ;;
    *) fail "no case '$1'; allowed: a b" ;;
  esac
}

# run LABEL COMMAND...: writes its output, and its peak memory.
run() {
  local label=$1
  shift
  /usr/bin/python3 ci/compare_trainer_table.py run "$out/$label" "$@" || fail "$label failed: $(tail -n 1 "$out/$label.err")"
}

torch_run() {  # LABEL ARGUMENTS...
  local label=$1
  shift
  run "$label" env $peer_environment $cores "$torch" ci/compare_trainer_torch.py "$@"
}

# Where torch.compile cannot work, this is reported once and eager counts.
compiles=yes
torch_compiled() {  # LABEL ARGUMENTS...
  [ $compiles = yes ] || return 0
  (torch_run "$@" --compile) 2>/dev/null && return
  compiles=no
  echo "PyTorch's eager mode alone is measured: $(tail -n 1 "$out/$1.err")" >&2
  rm -f "$out/$1".*
}

ours() {  # LABEL ARGUMENTS...
  local label=$1
  shift
  run "$label" $cores "$build/bin/mini_train" "$@" --peak-gflops 1 --validation-sequences 1 --json "$out/$label.jsonl"
}

for round in $(seq "$rounds"); do
  for case in $cases; do
    shape=$(shape_of "$case")
    half="${shape/--threads 2/--threads 1} --dp 2 --batch $(($(sed -E 's/.*--batch ([0-9]+).*/\1/' <<<"$shape") / 2))"
    for dtype in $dtypes; do
      ours "$round-$case-$dtype-ours" $shape --dtype "$dtype" --gemm "${GEMM:-probe}"
      torch_run "$round-$case-$dtype-torch" $shape --dtype "$dtype"
      torch_compiled "$round-$case-$dtype-compiled" $shape --dtype "$dtype"
      [ "$dtype" = f32 ] || torch_run "$round-$case-bf16-weights" $shape --dtype bf16-weights
      [ "$dtype" != f32 ] || ours "$round-$case-f32-dp2" $half --dtype f32 --gemm "${GEMM:-probe}"
    done
  done
done
/usr/bin/python3 ci/compare_trainer_table.py table "$out"
