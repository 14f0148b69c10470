// Which ranks work together. Ranks are numbered as Megatron does: tensor first, then context, then data, then pipeline;
// experts are spread over the context and data ranks, taken as one line.
//
//   rank = tp + t (cp + c (dp + d pp))     place in the line: cp + c dp = ep + e edp
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/layout/layout.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {

struct Coordinates {
  std::int64_t tp = 0;
  std::int64_t cp = 0;
  std::int64_t ep = 0;
  std::int64_t dp = 0;
  std::int64_t pp = 0;
  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};
Coordinates coordinates_of(const Layout& layout, std::int64_t rank);

enum class Group : std::uint8_t {
  tensor,
  context,
  data,         // the same data-parallel place of all else; without context ranks
  gradients,    // that reduce dense gradients: data x context
  expert,       // that exchange tokens
  expert_data,  // that reduce the gradients of the same experts
  shards,       // of `gradients`, that share a set of shards (ZeRO, HSDP)
  replicas,     // of `gradients`, that have the same shard
  pipeline,
  model,  // tensor x pipeline, of one context and data place: not evenly spaced
};

// Evenly spaced ranks: first, first + stride, ...
struct RankSet {
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t count = 1;
  std::int64_t at(std::int64_t i) const { return first + stride * i; }
};
// The group of `kind` that `rank` is in; any kind but `model`.
RankSet group_of(const Layout& layout, Group kind, std::int64_t rank);
// All groups of a kind, members written out, for small worlds. Ordered as Megatron's: by the first member's place in
// the line, then its stage, then its tensor rank.
std::vector<std::vector<std::int64_t>> groups_of(const Layout& layout, Group kind);

// How a set lies on a machine, for each level from the innermost: the most members that one switch of it joins.
std::vector<std::int64_t> members_a_level(const Machine& machine, const RankSet& set);

}  // namespace lockstep::simulator
