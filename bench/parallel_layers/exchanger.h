// A rank's collectives among tensor ranks.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>

#include "collectives/backends/mesh.h"
#include "collectives/collective.h"
#include "core/dtype.h"
#include "kernels/base/view.h"
#include "schedules/step/step.h"

namespace lockstep::layer_bench {

// Made by all ranks in the same order, for operations in the same order; run by one thread at a time. Operations that
// are alike share one.
class Exchanger {
 public:
  Exchanger(const backends::MeshRank& rank, std::size_t channel, std::string algorithm)
      : rank_(rank), channel_(channel), algorithm_(std::move(algorithm)) {}

  // All-gather: `from` of each rank into `to`. Reduce-scatter: the sum of all ranks' `from`, of which each has a part
  // in `to`. All-reduce: in place, both are the same.
  std::function<void()> make(schedules::Comm comm, const kernels::InOut& from, const kernels::Out& to);
  // An operation as it is; a root counts members.
  std::function<void()> make(const collectives::Operation& operation, const void* input, void* output);

 private:
  collectives::Collective& prepared(const collectives::Operation& operation);

  const backends::MeshRank& rank_;
  const std::size_t channel_;
  const std::string algorithm_;
  std::map<std::tuple<collectives::Kind, core::DType, std::int64_t, int, bool>,
           std::unique_ptr<collectives::Collective>>
      prepared_;  // by block elements, root, and whether it is in place
};

}  // namespace lockstep::layer_bench
