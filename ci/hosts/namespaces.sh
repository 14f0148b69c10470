#!/usr/bin/env bash
# Hosts on one machine: network namespaces joined by a bridge, each port limited to a rate in both directions by token
# buckets. Needs root, iproute2, and the kernel's veth, bridge and sch_tbf.
#   namespaces.sh up NUM [RATE=1gbit] [BURST=256kb] [LATENCY=5ms]   hosts 0 .. NUM-1, at 10.78.0.10 and up
#   namespaces.sh down                                              removes all of them; no error if there are none
#   namespaces.sh enter HOST COMMAND...                             runs COMMAND on a host, under the host's own name
#   namespaces.sh addresses NUM                                     prints the addresses, with commas between
# The bucket's depth matters: acknowledgements queue behind data, and a shallow bucket costs a third of the rate when
# both directions are busy (64 kB: 918 and 780 Mbit/s at once; 256 kB: 955 and 955).
set -euo pipefail
readonly prefix=lockstep bridge=lockstep-br network=10.78.0

up() {
  local num=$1 rate=${2:-1gbit} burst=${3:-256kb} latency=${4:-5ms} host
  ip link add "$bridge" type bridge
  ip link set "$bridge" up
  for ((host = 0; host < num; ++host)); do
    ip netns add "$prefix$host"
    ip link add "$prefix-v$host" type veth peer name port netns "$prefix$host"
    ip link set "$prefix-v$host" master "$bridge" up
    ip -n "$prefix$host" link set lo up
    ip -n "$prefix$host" link set port up
    ip -n "$prefix$host" addr add "$network.$((10 + host))/24" dev port
    # Limits in both directions of the host's link.
    ip netns exec "$prefix$host" tc qdisc add dev port root tbf rate "$rate" burst "$burst" latency "$latency"
    tc qdisc add dev "$prefix-v$host" root tbf rate "$rate" burst "$burst" latency "$latency"
  done
}

down() {
  local name
  for name in $(ip netns list | awk -v p="$prefix" '$1 ~ "^" p "[0-9]+$" { print $1 }'); do
    ip link del "$prefix-v${name#"$prefix"}" 2>/dev/null || true
    ip netns del "$name"
  done
  ip link del "$bridge" 2>/dev/null || true
}

enter() {
  local host=$1
  shift
  # shellcheck disable=SC2016  # sh expands it
  # The host's own name makes an MPI believe that it is one, so that it does not use shared memory.
  exec ip netns exec "$prefix$host" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$prefix$host" "$@"
}

addresses() {
  local list host
  for ((host = 0; host < $1; ++host)); do list+=${list:+,}$network.$((10 + host)); done
  echo "$list"
}

case ${1:-} in
  up | down | enter | addresses) "$@" ;;
  *) echo "namespaces.sh: '${1:-}': allowed: up, down, enter, addresses" >&2; exit 2 ;;
esac
