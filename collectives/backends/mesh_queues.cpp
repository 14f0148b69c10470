#include "collectives/backends/mesh_queues.h"

#include <algorithm>
#include <set>

#include "core/error.h"

namespace lockstep::backends {
namespace {

int queue_of(std::span<const int> queue_of_channel, std::size_t channel) {
  return queue_of_channel.empty() ? kComputeQueue : queue_of_channel[channel];
}

}  // namespace

int collectives_side_by_side(std::span<const int> queue_of_channel, std::size_t num_channels) {
  std::set<int> queues;
  for (std::size_t c = 0; c < num_channels; ++c) queues.insert(queue_of(queue_of_channel, c));
  return std::max(1, static_cast<int>(queues.size()));
}

RankStreams::RankStreams(core::Device& device, MakeStream make_stream, std::span<const int> queue_of_channel,
                         const std::vector<bool>& is_member_of_channel)
    : compute_(device.make_stream()) {
  LOCKSTEP_CHECK(queue_of_channel.empty() || queue_of_channel.size() == is_member_of_channel.size(),
                 "a queue for each channel");
  queues_.compute = compute_.get();
  queues_.of_channel.resize(is_member_of_channel.size());
  for (std::size_t c = 0; c < is_member_of_channel.size(); ++c) {
    if (!is_member_of_channel[c]) continue;
    const int queue = queue_of(queue_of_channel, c);
    if (queue == kComputeQueue) {
      queues_.of_channel[c] = compute_.get();
      continue;
    }
    std::unique_ptr<core::Stream>& stream = of_queue_[queue];
    if (!stream) stream = make_stream(device);
    queues_.of_channel[c] = stream.get();
  }
}

void RankStreams::synchronize() {
  compute_->synchronize();
  for (const auto& [queue, stream] : of_queue_) stream->synchronize();
}

}  // namespace lockstep::backends
