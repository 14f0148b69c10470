// A machine's network as links: a port of each device at each level, each way, and the uplinks between levels that
// carry less than their devices could send. Of a torus the links between neighbours, each way: of device d of it the
// ones to the next and the previous column at 4 d and 4 d + 1, to the next and the previous row behind them; those of
// all its devices, whether they have ranks or only pass messages on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
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
  // A message between ranks that stand for others (rotation.h), where rank r of the machine is at place r: links that
  // others' messages take are those that stand for them.
  Path path_of_period(std::int32_t from, std::int32_t to, std::int32_t period) const;

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
  void add_torus(const NetworkLevel& level, const Link& link);
  bool are_on_one_torus(std::int32_t a, std::int32_t b) const;
  // Calls take(device, way) for the links of a torus from one of its devices to another; `way` is 0 to 3 as above.
  template <class Take>
  void along_torus(std::int64_t from, std::int64_t to, const Take& take) const;
  Path path_on_torus(std::int32_t from, std::int32_t to) const;

  std::vector<std::int64_t> place_;
  std::vector<Level> levels_;
  std::optional<Torus> torus_;
  std::int64_t torus_size_ = 1;
  std::int64_t hop_ps_ = 0;
  std::map<std::int64_t, std::int32_t> torus_links_;  // by a torus's number: its first link
  std::vector<Link> links_;
};

}  // namespace lockstep::simulator
