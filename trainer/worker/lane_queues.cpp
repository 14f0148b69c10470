#include "trainer/worker/lane_queues.h"

#include <vector>

namespace lockstep::trainer {

using schedules::Lane;

LaneQueues::LaneQueues(backends::MeshRank& mesh, const ChannelMap& channels, bool has_messages,
                       const MakeContext& make_context) {
  streams_[index_of(Lane::compute)] = mesh.queues->compute;
  const std::vector<int> queues = channels.queues();
  for (std::size_t c = 0; c < queues.size(); ++c) {
    core::Stream* const stream = mesh.queues->of_channel[c];
    if (stream != nullptr) streams_[static_cast<std::size_t>(queues[c])] = stream;
  }
  for (const Lane lane : {Lane::send, Lane::receive}) {
    if (!has_messages) break;
    own_[index_of(lane)] = mesh.device.make_stream();
    streams_[index_of(lane)] = own_[index_of(lane)].get();
  }
  for (const Lane lane : {Lane::compute, Lane::reduce, Lane::replicas}) {
    if (streams_[index_of(lane)] != nullptr) contexts_[index_of(lane)] = make_context(stream(lane));
  }
}

}  // namespace lockstep::trainer
