// The simplest network: every rank has an equal port to one switch.
#pragma once

#include <vector>

#include "simulator/engine/links.h"

namespace lockstep::simulator {

class OneSwitch : public Topology {
 public:
  // `port`: in each direction.
  OneSwitch(std::int32_t ranks, std::int64_t latency_ps, Link port = {})
      : latency_ps_(latency_ps), links_(2 * static_cast<std::size_t>(ranks), port) {}

  Path path(std::int32_t from, std::int32_t to) const override {
    Path path(latency_ps_);
    path.add(2 * from);
    path.add(2 * to + 1);
    return path;
  }
  const std::vector<Link>& links() const override { return links_; }

 private:
  std::int64_t latency_ps_;
  std::vector<Link> links_;
};

}  // namespace lockstep::simulator
