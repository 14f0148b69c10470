// The collectives of one rank of an emulated run: their Plans by the message executor, over paced links. Buffers are
// small and stand for the stated bytes; what they hold is checked after each call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "collectives/collective.h"
#include "collectives/transports/loopback.h"
#include "schedules/step/step.h"
#include "simulator/emulated/emulated_run.h"
#include "simulator/emulated/paced_transport.h"

namespace lockstep::simulator {

class EmulatedCollectives {
 public:
  // Prepares all collectives that the rank's tasks name. What is passed outlives this.
  EmulatedCollectives(const schedules::Step& step, std::int32_t rank, const EmulationOptions& options,
                      transports::LoopbackWorld& world, transports::LinkTable& links, core::AbortFlag& abort);

  struct Ran {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
  };
  // Does the collective, from `ready_ns` on; returns when it has ended. Of different lanes side by side.
  Ran run(const schedules::Task& task, std::int64_t ready_ns);

 private:
  struct Prepared {
    std::unique_ptr<PacedTransport> transport;
    collectives::Operation operation = {};
    std::unique_ptr<collectives::Collective> collective = {};
    std::vector<float> input = {};
    std::vector<float> output = {};
  };
  using Key = std::tuple<schedules::Lane, std::int32_t, schedules::Comm>;  // lane, group
  static Key key_of(const schedules::Task& task) { return {task.lane, task.peer, task.comm}; }

  std::map<Key, Prepared> prepared_;
};

}  // namespace lockstep::simulator
