// Collectives among the ranks that have the same part of the model in every replica, on a channel of their own; their
// bytes are counted.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <tuple>

#include "collectives/backends/mesh.h"
#include "kernels/base/view.h"

namespace lockstep::trainer {

class Peers {
 public:
  // `channel` of the mesh contains `ranks`, one per replica in order. `algorithm`: of all-reduces, as a user writes it.
  // The mesh must outlive this.
  Peers(backends::MeshRank& mesh, std::size_t channel, std::span<const std::int32_t> ranks, std::string algorithm);

  int count() const { return count_; }
  int own() const { return own_; }  // replica of this rank

  // In place, on all peers or at the root; all peers make the same calls in the same order. Sums are in the view's
  // dtype.
  void all_reduce(const kernels::InOut& data);
  void reduce(int root, const kernels::InOut& data);
  void broadcast(int root, const kernels::InOut& data);

  std::int64_t sent_bytes() const { return sent_bytes_; }  // by this rank since the start, from the plans

 private:
  void run(collectives::Kind kind, int root, const kernels::InOut& data, std::string_view algorithm);

  struct Kept {
    backends::Prepared prepared;
    std::int64_t sent_bytes = 0;
  };
  backends::MeshRank& mesh_;
  const std::size_t channel_;
  const int count_;
  const int own_;
  const std::string algorithm_;
  std::map<std::tuple<collectives::Kind, int, std::int64_t, core::DType>, Kept> kept_;
  std::int64_t sent_bytes_ = 0;
};

}  // namespace lockstep::trainer
