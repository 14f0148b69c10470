// A rank's collectives among tensor-parallel ranks.
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

namespace lockstep::tp_linear {

// All ranks must make them in the same order and run them in the same order, in one thread at a time. Equal operations
// share one collective.
class Exchanger {
 public:
  Exchanger(const backends::MeshRank& rank, std::size_t channel, std::string algorithm)
      : rank_(rank), channel_(channel), algorithm_(std::move(algorithm)) {}

  // All-gather: each rank's `from` into `to`. Reduce-scatter: a part of the sum of all ranks' `from` into each `to`.
  // All-reduce: in place, `from` and `to` are the same.
  std::function<void()> make(schedules::Comm comm, const kernels::InOut& from, const kernels::Out& to);
  // Takes an operation as given; a root is an index of members.
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

}  // namespace lockstep::tp_linear
