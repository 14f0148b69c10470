#include "trainer/sync/peers.h"

#include <algorithm>
#include <utility>

#include "collectives/backends/sent_bytes.h"

namespace lockstep::trainer {

using collectives::Kind;

Peers::Peers(backends::MeshRank& mesh, std::size_t channel, std::span<const std::int32_t> ranks, std::string algorithm)
    : mesh_(mesh),
      channel_(channel),
      count_(static_cast<int>(ranks.size())),
      own_(static_cast<int>(std::find(ranks.begin(), ranks.end(), mesh.messages.rank()) - ranks.begin())),
      algorithm_(std::move(algorithm)) {}

void Peers::all_reduce(const kernels::InOut& data) {
  run(Kind::all_reduce, 0, data, algorithm_);
}

// Directly to the root and from there, like a server.
void Peers::reduce(int root, const kernels::InOut& data) {
  run(Kind::reduce, root, data, "direct");
}

void Peers::broadcast(int root, const kernels::InOut& data) {
  run(Kind::broadcast, root, data, "direct");
}

void Peers::run(Kind kind, int root, const kernels::InOut& data, std::string_view algorithm) {
  const auto [place, is_new] = kept_.try_emplace({kind, root, data.elems, data.dtype});
  Kept& kept = place->second;
  if (is_new) {
    const collectives::Operation operation{.kind = kind,
                                           .count = data.elems,
                                           .dtype = data.dtype,
                                           .op = core::ReduceOp::sum,
                                           .root = root,
                                           .in_place = true};
    kept.prepared = mesh_.prepare(channel_, operation, algorithm);
    kept.sent_bytes = backends::sent_bytes(kept.prepared, operation, own_);
  }
  kept.prepared.collective->run(data.data, data.data);
  sent_bytes_ += kept.sent_bytes;
}

}  // namespace lockstep::trainer
