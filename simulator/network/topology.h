// A machine's network as links: a port of each device at each level, each way, and the uplinks between levels that
// carry less than their devices could send.
#pragma once

#include <cstdint>
#include <vector>

#include "simulator/engine/links.h"
#include "simulator/machine/machine.h"

namespace lockstep::simulator {

// `place`: of each rank of a step, its number in the whole machine. Where a step has only some of the machine's ranks,
// an uplink carries only its part for those, as if the others did alike. Keeps a reference to nothing.
class MachineNetwork : public Topology {
 public:
  MachineNetwork(const Machine& machine, std::vector<std::int64_t> place);

  Path path(std::int32_t from, std::int32_t to) const override;
  const std::vector<Link>& links() const override { return links_; }

 private:
  struct Level {
    std::int64_t ranks = 0;  // that one switch joins; the last level: all
    std::int64_t latency_ps = 0;
    std::int32_t first_port = 0;     // of rank r: out at 2 r, in behind it
    std::int32_t first_uplink = -1;  // -1: as wide as the ports below; of switch s below: up at 2 s, down behind it
    std::vector<std::int32_t> switch_of =
        {};  // of each rank: its switch of the level below, those without ranks left out
  };
  std::size_t common_level(std::int32_t a, std::int32_t b) const;

  std::vector<std::int64_t> place_;
  std::vector<Level> levels_;
  std::vector<Link> links_;
};

}  // namespace lockstep::simulator
