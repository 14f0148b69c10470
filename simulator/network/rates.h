// The placement of a collective's members on the levels of a machine, and the bandwidth of their ports.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "simulator/machine/machine.h"

namespace lockstep::simulator {

// For each level of a machine, the number of members that one switch joins (workload/groups.h); the last is all of
// them.
using MembersOfLevels = std::span<const std::int64_t>;

// One level of the machine as a group crosses it.
struct Crossing {
  double parts = 1;           // switches of the level below that the members of one switch come from
  double members_a_part = 1;  // members in each of those
};
Crossing crossing_of(MembersOfLevels members, std::size_t level);

// The members of a group on a torus, in the order of their numbers: whole rows, or part of one row.
struct TorusPart {
  double columns = 1;
  double rows = 1;
};
TorusPart torus_part(const Torus& torus, std::int64_t members);
// Load of the busiest link in an all-to-all, in units of the bytes that each member exchanges with all others:
// everything that goes one way along a row, or a column, passes a link of it.
double torus_load(const Torus& torus, std::int64_t members);

// Bytes per microsecond that one member's port carries for a collective among these members. If devices are joined by
// links instead of a switch, small groups have few links between their members (Nccl::of_members).
double port_rate(const Machine& machine, MembersOfLevels members, std::size_t level);

// Bytes per microsecond that each member of a ring over all members sends: the slowest part of the ring, from a given
// level on. Infinite if the ring does not cross that level.
double ring_rate(const Machine& machine, MembersOfLevels members, std::size_t first_level = 0);

}  // namespace lockstep::simulator
