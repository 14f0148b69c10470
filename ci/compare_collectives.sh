#!/usr/bin/env bash
# Compares Lockstep's local all-reduce with Open MPI (its own choice, and each algorithm forced), MPICH, Gloo and the machine's
# limit. Runs alternate, one round after the other, so that drift affects all alike.
#   ci/compare_collectives.sh [BUILD=build/release] [OUT=out/compare_collectives]
# Environment: ROUNDS (2), RANKS ("2 4 8"), PLANS (in addition to auto), GROUPS_OF_SIZES ("small large").
# Programs that are missing are built; peers that are not installed are left out. bench/tune runs first, so that auto has a table.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$PWD/${1:-build/release} out=${2:-out/compare_collectives}
rounds=${ROUNDS:-2} plans=${PLANS:-ring,two_shot,one_shot,recursive_doubling} groups=${GROUPS_OF_SIZES:-small large}
cores=$(nproc)

fail() { echo "ci/compare_collectives.sh: $*" >&2; exit 1; }
[ -f "$build/CMakeCache.txt" ] || cmake --preset release -B "$build" >/dev/null
cmake --build "$build" --target all_reduce_perf peers | grep '^peers:' || true
rm -rf "$out"
mkdir -p "$out"
log=$out/log

# A group of sizes: ranges BEGIN:END:FACTOR for us, a list for peers; and calls of each size.
ranges_of() { if [ "$1" = small ]; then echo 8:8:2 16:64K:4; else echo 256K:64M:4; fi; }
sizes_of() {
  if [ "$1" = small ]; then echo 8,16,64,256,1024,4096,16384,65536; else echo 262144,1048576,4194304,16777216,67108864; fi
}
calls_of() { if [ "$1" = small ]; then echo 300; else echo 20; fi; }

# try LABEL COMMAND...: a library that fails or hangs is reported and left out.
try() {
  local label=$1
  shift
  timeout 300 "$@" >"$out/$label.csv" 2>"$log" || { echo "$label failed: $(tail -n 1 "$log")" >&2; rm -f "$out/$label.csv"; }
}

ours() {  # RANKS GROUP ROUND
  local range begin end factor algorithms
  for range in $(ranges_of "$2"); do
    IFS=: read -r begin end factor <<<"$range"
    for algorithms in auto "$plans"; do  # the file's name marks runs with auto
      "$build/bin/all_reduce_perf" --ranks "$1" --algo "$algorithms" -b "$begin" -e "$end" -f "$factor" \
        -n "$(calls_of "$2")" -w 5 --json "$out/ours-$1-$3-$begin@${algorithms//[^a-z]/}@.jsonl" >"$log" 2>&1 ||
        { cat "$log" >&2; fail "all_reduce_perf failed"; }
    done
  done
}

openmpi() {  # RANKS GROUP ROUND NAME ALGORITHM (of coll_tuned; 0: its own choice)
  [ -x "$build/bin/peers/openmpi_all_reduce" ] || return 0
  local options=(--allow-run-as-root -np "$1")
  if [ "$1" -gt "$cores" ]; then
    options+=(--oversubscribe --bind-to none --mca mpi_yield_when_idle 1)
  else
    options+=(--bind-to core)
  fi
  [ "$5" -eq 0 ] || options+=(--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm "$5")
  try "openmpi-$4-$1-$2-$3" mpirun.openmpi "${options[@]}" "$build/bin/peers/openmpi_all_reduce" "openmpi $4" \
    "$(sizes_of "$2")" "$(calls_of "$2")"
}

mpich() {  # RANKS GROUP ROUND ALGORITHM
  [ -x "$build/bin/peers/mpich_all_reduce" ] || return 0
  local calls
  calls=$(calls_of "$2")
  [ "$1" -le "$cores" ] || calls=10  # it polls without giving its core away: milliseconds per call
  try "mpich-$4-$1-$2-$3" env MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM="$4" mpiexec.mpich -n "$1" \
    "$build/bin/peers/mpich_all_reduce" "mpich $4" "$(sizes_of "$2")" "$calls"
}

gloo() {  # RANKS GROUP ROUND ALGORITHM
  [ -x "$build/bin/peers/gloo_all_reduce" ] || return 0
  local store rank
  store=$(mktemp -d)
  for ((rank = 1; rank < $1; ++rank)); do
    timeout 300 "$build/bin/peers/gloo_all_reduce" "$4" "$rank" "$1" "$store" lo "$(sizes_of "$2")" "$(calls_of "$2")" \
      >/dev/null 2>&1 &
  done
  try "gloo-$4-$1-$2-$3" "$build/bin/peers/gloo_all_reduce" "$4" 0 "$1" "$store" lo "$(sizes_of "$2")" "$(calls_of "$2")"
  wait
  rm -rf "$store"
}

# On as many threads as there are ranks, so that on a machine with other programs they get the same share of it.
limit() {  # RANKS GROUP ROUND
  try "limit-$1-$2-$3" "$build/bin/peers/two_shot_limit" "$1" "$1" "$(sizes_of "$2")" "$(calls_of "$2")"
}

openmpi_algorithms=(default basic_linear nonoverlapping recursive_doubling ring segmented_ring rabenseifner)
for ranks in ${RANKS:-2 4 8}; do
  for group in $groups; do
    for ((round = 1; round <= rounds; ++round)); do
      echo "$ranks ranks, $group sizes, round $round" >&2
      ours "$ranks" "$group" "$round"
      limit "$ranks" "$group" "$round"
      for number in "${!openmpi_algorithms[@]}"; do
        openmpi "$ranks" "$group" "$round" "${openmpi_algorithms[number]}" "$number"
      done
      for name in auto smp recursive_doubling reduce_scatter_allgather; do mpich "$ranks" "$group" "$round" "$name"; done
      for name in ring ring_chunked halving_doubling bcube; do gloo "$ranks" "$group" "$round" "$name"; done
    done
  done
done
rm -f "$log"
python3 ci/compare_rows.py collectives "$out"
