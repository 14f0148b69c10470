// The collectives with which context-parallel ranks run the exchanges of their list.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "collectives/backends/mesh.h"
#include "parallel/context/context_attention.h"
#include "schedules/step/step.h"

namespace lockstep::context_bench {

// All ranks must construct them in the same order; equal moves share one collective.
class Exchanges {
 public:
  Exchanges(const backends::MeshRank& rank, std::size_t channel, int num_ranks)
      : rank_(rank), channel_(channel), num_ranks_(num_ranks) {}

  // All ranks call it together, before the first run.
  void prepare(schedules::Comm comm, const parallel::ContextMove& move) { of(comm, move); }
  void run(schedules::Comm comm, const parallel::ContextMove& move);

 private:
  using Key = std::tuple<schedules::Comm, core::DType, std::int64_t, const void*>;
  collectives::Collective& of(schedules::Comm comm, const parallel::ContextMove& move);

  const backends::MeshRank& rank_;
  const std::size_t channel_;
  const int num_ranks_;
  std::byte nothing_{};  // placeholder buffer of a rank that sends or receives nothing
  std::map<Key, std::unique_ptr<collectives::Collective>> prepared_;
};

}  // namespace lockstep::context_bench
