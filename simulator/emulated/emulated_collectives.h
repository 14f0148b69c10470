// The collectives of one rank of an emulated run: the message executor runs their Plans over paced links. Small buffers
// represent the stated bytes; their contents are checked after each call.
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
  // Prepares all collectives that the rank's tasks name. The arguments have to outlive this object.
  EmulatedCollectives(const schedules::Step& step, std::int32_t rank, const EmulationOptions& options,
                      transports::LoopbackWorld& world, transports::LinkTable& links, core::AbortFlag& abort);

  struct Ran {
    std::int64_t start_ns = 0;
    std::int64_t end_ns = 0;
  };
  // Runs the collective from `ready_ns` on; returns when it has ended. Calls for different lanes may be concurrent.
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
