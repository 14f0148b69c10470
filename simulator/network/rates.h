// How members of a collective lie on the levels of a machine, and what their ports carry.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "simulator/machine/machine.h"

namespace lockstep::simulator {

// For each level of a machine, how many members one switch of it joins (workload/groups.h); the last is all of them.
using MembersOfLevels = std::span<const std::int64_t>;

// A level as a group crosses it.
struct Crossing {
  double parts = 1;           // switches of the level below that the members of one switch come from
  double members_a_part = 1;  // members in each of those
};
Crossing crossing_of(MembersOfLevels members, std::size_t level);

// Members of a torus as a group has them, in the order of their numbers: whole rows, or part of one.
struct TorusPart {
  double columns = 1;
  double rows = 1;
};
TorusPart torus_part(const Torus& torus, std::int64_t members);
// Of the bytes that each member exchanges with all, how many times them the busiest link carries: all that go one way
// along a row, or a column, pass a link of it in turn.
double torus_load(const Torus& torus, std::int64_t members);

// Bytes a microsecond that one member's port carries for a collective among these members. Where devices are joined by
// links instead of a switch, few of them have few of their links between them (Nccl::of_members).
double port_rate(const Machine& machine, MembersOfLevels members, std::size_t level);

// Bytes a microsecond that each member of a ring over all members sends: the least of what the ring passes, from a
// level on. Infinite if it passes none.
double ring_rate(const Machine& machine, MembersOfLevels members, std::size_t first_level = 0);

}  // namespace lockstep::simulator
