#!/usr/bin/env bash
# Hosts on one machine: network namespaces joined by a bridge, each port limited to a rate in both directions by token
# buckets. Needs root, iproute2, and the kernel's veth, bridge and sch_tbf.
#   namespaces.sh up NUM [RATE=1gbit] [BURST=256kb] [LATENCY=5ms]   hosts 0 .. NUM-1, at 10.78.0.10 and up
#   namespaces.sh down                                              removes all namespaces; no error if there are none
#   namespaces.sh enter HOST COMMAND...                             runs COMMAND on a host, under the host's own name
#   namespaces.sh addresses NUM                                     prints the addresses, with commas between
#   namespaces.sh run NUM COMMAND...                                runs COMMAND on host 0 of NUM hosts, which end with it
# For `run`, Open MPI takes the hosts by settings in the environment, so that mpirun needs a host file with the addresses only:
#   namespaces.sh run 2 mpirun --hostfile hosts.txt -n 4 PROGRAM...
# The bucket's depth matters: acknowledgements queue after data, and a shallow bucket costs a third of the rate when
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

run() {
  local here
  here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
  # Hosts in a network and a list of names of their own: several runs at a time, and nothing to remove.
  if [ -z "${LOCKSTEP_HOSTS_ALONE:-}" ]; then
    LOCKSTEP_HOSTS_ALONE=1 exec unshare --net --mount "$here/namespaces.sh" run "$@"
  fi
  unset LOCKSTEP_HOSTS_ALONE
  mkdir -p /run/netns
  mount -t tmpfs hosts /run/netns
  up "$1"
  shift
  # Ranks of all hosts share this machine's cores, which Open MPI cannot know: it must not poll without a break.
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent="$here/agent.sh" \
    OMPI_MCA_oob_tcp_if_include=$network.0/24 OMPI_MCA_btl_tcp_if_include=$network.0/24 \
    OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_hwloc_base_binding_policy=none
  # Keeps the network between the hosts, in which no process would be left, as long as COMMAND runs. Signals that end
  # COMMAND's group must not end the network first: mpirun would wait for its daemons for ever.
  (trap '' TERM INT HUP && exec setpriv --pdeathsig KILL sleep infinity) >/dev/null 2>&1 </dev/null &
  enter 0 "$@"
}

addresses() {
  local list host
  for ((host = 0; host < $1; ++host)); do list+=${list:+,}$network.$((10 + host)); done
  echo "$list"
}

case ${1:-} in
  up | down | enter | addresses | run) "$@" ;;
  *) echo "namespaces.sh: '${1:-}': allowed: up, down, enter, addresses, run" >&2; exit 2 ;;
esac
