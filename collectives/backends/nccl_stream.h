// NCCL's messages and our kernels in one stream: runs plans over NCCL. Built with NCCL only.
#pragma once

#include <span>
#include <vector>

#include "collectives/executors/grouped/cuda_combiner.h"
#include "collectives/executors/grouped/grouped_executor.h"
#include "collectives/libraries/nccl_library.h"
#include "core/device.h"

namespace lockstep::backends {

class NcclStream final : public executors::GroupStream {
 public:
  NcclStream(libraries::NcclGroup& group, core::Device& device, core::Stream& stream, int rank)
      : group_(group), stream_(stream), combiner_(device, stream, rank) {}

  void combine(const executors::Combination& combination) override { combiner_.combine(combination); }
  void exchange(std::span<const executors::PeerMessage> sends,
                std::span<const executors::PeerMessage> receives) override {
    put(sends, sends_);
    put(receives, receives_);
    group_.exchange(sends_, receives_, stream_);
  }

 private:
  static void put(std::span<const executors::PeerMessage> messages, std::vector<libraries::PeerBytes>& to) {
    to.clear();
    for (const auto& m : messages) to.push_back({m.peer, m.memory, static_cast<std::size_t>(m.bytes)});
  }

  libraries::NcclGroup& group_;
  core::Stream& stream_;
  executors::CudaCombiner combiner_;
  std::vector<libraries::PeerBytes> sends_;  // sends of one group
  std::vector<libraries::PeerBytes> receives_;
};

}  // namespace lockstep::backends
