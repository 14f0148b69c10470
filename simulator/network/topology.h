// A machine's network as links, and the collectives of a step as messages on it.
//
// The links are a port of each device at each level, each way, and the uplinks between levels that carry less than
// their devices could send. A torus has the links between neighbours, each way, of all its devices, whether they have
// ranks or only pass messages on. From its device d the link to the next column has the number 4 d; the links to the
// previous column, the next row and the previous row follow.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "collectives/collective.h"
#include "collectives/plan/plan.h"
#include "schedules/step/step.h"
#include "simulator/engine/engine.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {

// `place`: the device number of each rank of a step in the whole machine. If a step has only some of the machine's
// ranks, they get their share of each uplink, as if the others did the same. Keeps no reference.
class MachineNetwork : public Topology {
 public:
  MachineNetwork(const Machine& machine, std::vector<std::int64_t> place);

  Path path(std::int32_t from, std::int32_t to) const override;
  const std::vector<Link>& links() const override { return links_; }
  // The path of a message if the first `period` ranks represent all (rotation_period) and rank r is device r: links
  // beyond the period are mapped to those that represent them.
  Path path_of_period(std::int32_t from, std::int32_t to, std::int32_t period) const;

 private:
  struct Level {
    std::int64_t ranks = 0;  // joined by one switch; on the last level, all ranks
    std::int64_t latency_ps = 0;
    std::int32_t first_port = 0;     // ports of rank r: out at 2 r, in at 2 r + 1
    std::int32_t first_uplink = -1;  // -1: no limit; uplinks of switch s below: up at 2 s, down at 2 s + 1
    std::vector<std::int32_t> switch_of =
        {};  // per rank: its switch of the level below, numbered without those that have no ranks
  };
  std::size_t common_level(std::int32_t a, std::int32_t b) const;
  void add_torus(const NetworkLevel& level, const Link& link);
  bool are_on_one_torus(std::int32_t a, std::int32_t b) const;
  // Calls take(device, direction) for the links of a torus from one device to another; directions are 0 to 3 as above.
  template <class Take>
  void along_torus(std::int64_t from, std::int64_t to, const Take& take) const;
  Path path_on_torus(std::int32_t from, std::int32_t to) const;

  std::vector<std::int64_t> place_;
  std::vector<Level> levels_;
  std::optional<Torus> torus_;
  std::int64_t torus_size_ = 1;
  std::int64_t hop_ps_ = 0;
  std::map<std::int64_t, std::int32_t> torus_links_;  // first link, by the number of the torus
  std::vector<Link> links_;
};

// Maps a step's collectives to collectives::Kind.
inline collectives::Kind kind_of(schedules::Comm comm) {
  switch (comm) {
    case schedules::Comm::all_gather:
      return collectives::Kind::all_gather;
    case schedules::Comm::reduce_scatter:
      return collectives::Kind::reduce_scatter;
    case schedules::Comm::all_to_all:
      return collectives::Kind::all_to_all;
    case schedules::Comm::broadcast:
      return collectives::Kind::broadcast;
    case schedules::Comm::reduce:
      return collectives::Kind::reduce;
    case schedules::Comm::shift:
      return collectives::Kind::send_recv;
    default:
      return collectives::Kind::all_reduce;
  }
}

// Expands collectives to the messages of their Plans, which share the network's links with all other messages. The
// alternative is a formula (collective_time.h); on ideal links both agree.

// Returns the plan of a collective among `ranks` ranks; it must have one lane.
using PlanChoice = std::function<plan::Plan(schedules::Comm comm, int ranks)>;
// The catalogue's ring; for all-to-all its pairwise exchange; for a shift its messages.
plan::Plan ring_plan(schedules::Comm comm, int ranks);

// Replaces each collective of two or more ranks by the steps of its plan, in sequence in the collective's lane: a send
// occupies the lane until its bytes have left; sums and copies take `local_ps_per_byte`. All members of a group have to
// be ranks of the step. Throws core::Error(usage) if a plan has more than one lane.
void expand_collectives(schedules::Step& step, const PlanChoice& choose, double local_ps_per_byte = 0);

}  // namespace lockstep::simulator
