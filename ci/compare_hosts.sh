#!/usr/bin/env bash
# Compares Lockstep's plans over MPI with Open MPI's own all-reduce algorithms and Gloo's, on 4 hosts of network namespaces with
# 1 Gbit/s ports. Runs alternate, size by size and round by round, so that drift affects all alike.
#   ci/compare_hosts.sh [BUILD=build/release] [OUT=out/compare_hosts]
# Environment: ROUNDS (2), SIZES (bytes, with spaces between), PLANS (as in --algo), HOSTS (4).
# Needs root (network namespaces). Programs that are missing are built; peers that are not installed are left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$PWD/${1:-build/release} out=${2:-out/compare_hosts}
rounds=${ROUNDS:-2} hosts=${HOSTS:-4}
sizes=${SIZES:-8 64 1024 4096 16384 65536 262144 1048576 4194304 16777216 67108864}
plans=${PLANS:-auto,recursive_doubling,one_shot,two_shot,halving_doubling,ring,ring:lanes=2}
namespaces=ci/hosts/namespaces.sh

fail() { echo "ci/compare_hosts.sh: $*" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || fail "needs root, to make network namespaces; run it with sudo"
for tool in ip tc unshare mpirun.openmpi; do
  command -v "$tool" >/dev/null || fail "$tool is not there; ci/install.sh build peers installs it"
done
[ -f "$build/CMakeCache.txt" ] || cmake --preset release -B "$build" >/dev/null
cmake --build "$build" --target all_reduce_perf sendrecv_perf tune peers | grep '^peers:' || true

rm -rf "$out"
mkdir -p "$out"
export LOCKSTEP_TUNING=$PWD/$out/tuning.json  # not the table of this machine
trap '$namespaces down' EXIT
$namespaces down
$namespaces up "$hosts"

# on_hosts COMMAND...: a rank on each host
on_hosts() {
  $namespaces enter 0 mpirun.openmpi --allow-run-as-root --host "$($namespaces addresses "$hosts")" -np "$hosts" \
    --bind-to none --mca plm_rsh_agent "$PWD/ci/hosts/agent.sh" --mca oob_tcp_if_include 10.78.0.0/24 \
    --mca pml ob1 --mca btl tcp,self --mca btl_tcp_if_include 10.78.0.0/24 --mca mpi_yield_when_idle 1 -x LOCKSTEP_TUNING "$@"
}

calls_for() { if [ "$1" -ge 16777216 ]; then echo 3; elif [ "$1" -ge 262144 ]; then echo 9; else echo 100; fi; }
# The other libraries' programs divide their number of calls at large sizes (bench/peers/peers.h).
peer_calls_for() { echo $(($(calls_for "$1") * ($1 >= 16777216 ? 8 : $1 >= 1048576 ? 2 : 1))); }

ours() {  # SIZE ROUND
  on_hosts "$build/bin/all_reduce_perf" --transport mpi --algo "$plans" -b "$1" -e "$1" -n "$(calls_for "$1")" -w 2 \
    --json "$out/ours-$1-$2.jsonl" >"$out/log" 2>&1 || { cat "$out/log" >&2; fail "all_reduce_perf failed"; }
}

openmpi() {  # SIZE ROUND NAME ALGORITHM (of coll_tuned; 0: its own choice)
  local force=()
  [ "$4" -eq 0 ] || force=(--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm "$4")
  on_hosts "${force[@]}" "$build/bin/peers/openmpi_all_reduce" "openmpi $3" "$1" \
    "$(peer_calls_for "$1")" >"$out/openmpi-$3-$1-$2.csv" 2>"$out/log" || { cat "$out/log" >&2; fail "openmpi_all_reduce failed"; }
}

gloo() {  # SIZE ROUND ALGORITHM
  [ -x "$build/bin/peers/gloo_all_reduce" ] || return 0
  local host store calls
  store=$(mktemp -d)
  calls=$(peer_calls_for "$1")
  for ((host = 0; host < hosts; ++host)); do
    $namespaces enter "$host" timeout 120 "$build/bin/peers/gloo_all_reduce" "$3" "$host" "$hosts" "$store" port "$1" "$calls" \
      >"$out/gloo-$3-$1-$2-$host.csv" &
  done
  wait
  rm -rf "$store"
}

# Each rank sends to the next: all ports are busy in both directions.
on_hosts "$build/bin/sendrecv_perf" --transport mpi -b 64M -e 64M -n 3 -w 1 --json "$out/wire.json" >"$out/log" 2>&1 ||
  { cat "$out/log" >&2; fail "sendrecv_perf failed"; }
goodput=$(python3 -c '
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
print(max(r["bytes"] / r["stats"]["median"] for r in rows if r["record"] == "row"))' "$out/wire.json")

# The table from which --algo auto chooses.
on_hosts "$build/bin/tune" --transport mpi --collectives all_reduce -e 4M -f 2 --time-budget 90 \
  --output "$LOCKSTEP_TUNING" >&2 || fail "tune failed"

for size in $sizes; do
  for ((round = 1; round <= rounds; ++round)); do
    echo "size $size, round $round" >&2
    ours "$size" "$round"
    openmpi "$size" "$round" default 0
    openmpi "$size" "$round" recursive_doubling 3
    openmpi "$size" "$round" ring 4
    openmpi "$size" "$round" rabenseifner 6
    gloo "$size" "$round" ring_chunked
  done
done
rm -f "$out/log"
python3 ci/compare_rows.py hosts "$out" "$hosts" "$goodput"
