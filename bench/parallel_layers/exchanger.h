// A rank's collectives among tensor ranks, and what they have sent.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "collectives/backends/mesh.h"
#include "collectives/collective.h"
#include "core/dtype.h"
#include "kernels/base/view.h"

namespace lockstep::layer_bench {

// Made by all ranks in the same order, for operations in the same order; run by one thread at a time.
class Exchanger {
 public:
  Exchanger(const backends::MeshRank& rank, std::size_t channel, int index, std::string algorithm)
      : rank_(rank), channel_(channel), index_(index), algorithm_(std::move(algorithm)) {}

  std::function<void()> all_reduce(kernels::InOut values);                  // in place
  std::function<void()> all_gather(kernels::In own, kernels::Out all);      // own's elements of each rank
  std::function<void()> reduce_scatter(kernels::In all, kernels::Out own);  // own's elements for each rank

  std::int64_t sent_bytes() const { return sent_bytes_; }  // by this rank, since it was made

 private:
  struct Prepared {
    std::unique_ptr<collectives::Collective> collective;
    std::int64_t sent_bytes = 0;  // by this rank in a run: counted from the plan
  };
  std::function<void()> make(const collectives::Operation& operation, const void* input, void* output);
  Prepared& prepared(const collectives::Operation& operation);

  const backends::MeshRank& rank_;
  std::size_t channel_;
  int index_;
  std::string algorithm_;
  std::map<std::tuple<collectives::Kind, core::DType, std::int64_t>, Prepared> prepared_;  // by block elements
  std::int64_t sent_bytes_ = 0;
};

}  // namespace lockstep::layer_bench
