// A rank's lanes on a device with queued work: each lane has a stream, and a context for kernels in it.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <memory>

#include "collectives/backends/mesh.h"
#include "core/device.h"
#include "kernels/base/context.h"
#include "schedules/step/step.h"
#include "trainer/worker/channels.h"

namespace lockstep::trainer {

class LaneQueues {
 public:
  using MakeContext = std::function<std::shared_ptr<kernels::CudaContext>(core::Stream&)>;
  // For a mesh with queues. Lanes of collectives use the streams of their channels, to which ChannelMap::queues() has
  // assigned a lane each. Messages, if there are any, have two streams of their own so that copies overlap with
  // kernels. Only the streams in use are created: a GPU has few hardware connections (mesh_cuda.cpp). The arguments
  // must outlive this.
  LaneQueues(backends::MeshRank& mesh, const ChannelMap& channels, bool has_messages, const MakeContext& make_context);

  // The stream of a lane with tasks.
  core::Stream& stream(schedules::Lane lane) const { return *streams_[index_of(lane)]; }
  // Context of a lane with kernels: compute, and the lanes that reduce.
  kernels::Context where(schedules::Lane lane) const { return kernels::Context(*contexts_[index_of(lane)]); }

 private:
  static std::size_t index_of(schedules::Lane lane) { return static_cast<std::size_t>(lane); }
  std::array<std::unique_ptr<core::Stream>, schedules::kNumLanes> own_;
  std::array<core::Stream*, schedules::kNumLanes> streams_ = {};
  std::array<std::shared_ptr<kernels::CudaContext>, schedules::kNumLanes> contexts_;
};

}  // namespace lockstep::trainer
