// Streams of a mesh's rank on a device that has streams: plain code over core::Device.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "collectives/backends/mesh.h"
#include "core/device.h"

namespace lockstep::backends {

// Number of a rank's collectives that can be in flight at the same time: one for each stream that channels use. The
// same on all ranks, as they have to agree on each collective's share of a device.
int collectives_side_by_side(std::span<const int> queue_of_channel, std::size_t num_channels);

// Makes a stream for collectives.
using MakeStream = std::unique_ptr<core::Stream> (*)(core::Device& device);

class RankStreams {
 public:
  // Makes a stream for kernels, and one for each queue of channels that the rank is a member of. The device outlives
  // it.
  RankStreams(core::Device& device, MakeStream make_stream, std::span<const int> queue_of_channel,
              const std::vector<bool>& is_member_of_channel);

  const MeshQueues& queues() const { return queues_; }
  core::Stream& of_channel(std::size_t channel) const { return *queues_.of_channel[channel]; }
  void synchronize();  // returns when all enqueued work is done

 private:
  std::unique_ptr<core::Stream> compute_;
  std::map<int, std::unique_ptr<core::Stream>> of_queue_;
  MeshQueues queues_;
};

}  // namespace lockstep::backends
