// All context ranks of a layer in one thread: their exchanges are copies from one rank's memory to another's.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "core/error.h"
#include "kernels/residual/residual.h"
#include "parallel/context/context_attention.h"

namespace lockstep::parallel {

class ContextRanks {
 public:
  ContextRanks(ContextLayer layer, const Workspace& workspace) : workspace_(workspace) {
    for (layer.rank = 0; layer.rank < layer.shape.ranks; ++layer.rank) {
      plans_.push_back(std::make_unique<ContextPlan>(layer));
      ranks_.push_back(make_context_attention(*plans_.back(), workspace));
    }
  }

  ContextAttention& rank(std::size_t r) { return *ranks_[r]; }
  const ContextPlan& plan(std::size_t r) const { return *plans_[r]; }

  void forward() { run(false); }
  void backward() { run(true); }
  double sent_bytes(std::size_t r) const { return sent_bytes_.empty() ? 0 : sent_bytes_[r]; }

 private:
  std::int32_t turns() const { return plans_.front()->list().turns(); }

  // As the step model has the pieces, one after the other.
  void run(bool backward) {
    for (std::int32_t step = 0; step < turns(); ++step) {
      const std::int32_t turn = backward ? turns() - 1 - step : step;
      const auto places = workload::places_of(plans_.front()->turn(backward, turn), turn);
      exchange_all(places, backward, false);
      for (const auto& rank : ranks_) backward ? rank->core_gradient(turn) : rank->core(turn);
      if (step > 0) merge(backward ? turn + 1 : turn - 1, backward);
      exchange_all(places, backward, true);
      if (step + 1 == turns()) merge(turn, backward);
    }
  }
  void merge(std::int32_t turn, bool backward) {
    for (const auto& rank : ranks_) backward ? rank->merge_gradients(turn) : rank->merge(turn);
  }
  void exchange_all(const std::vector<workload::ExchangePlace>& places, bool backward, bool results) {
    for (const workload::ExchangePlace& place : places) {
      if (place.results == results) exchange(backward, place);
    }
  }

  void exchange(bool backward, const workload::ExchangePlace& place) {
    std::vector<ContextMove> moves;
    for (const auto& rank : ranks_) moves.push_back(rank->exchange(backward, place));
    sent_bytes_.resize(ranks_.size());
    for (std::size_t from = 0; from < ranks_.size(); ++from) {
      for (std::size_t to = 0; to < ranks_.size(); ++to)
        move(moves, from, to, plans_.front()->exchange(backward, place));
    }
    for (const auto& rank : ranks_) rank->exchanged(backward, place);
  }

  void move(const std::vector<ContextMove>& moves, std::size_t from, std::size_t to,
            const workload::ContextExchange& exchange) {
    const auto* const source = moves[from].input.as<std::byte>();
    auto* const target = moves[to].output.as<std::byte>();
    const std::size_t in_bytes = kernels::size_bytes(moves[from].input.dtype, moves[from].input.elems);
    const std::size_t out_bytes = kernels::size_bytes(moves[to].output.dtype, moves[to].output.elems);
    const std::size_t ranks = ranks_.size();
    std::size_t bytes = 0;
    switch (exchange.comm) {
      case schedules::Comm::shift:
        bytes = static_cast<std::size_t>(moves[from].bytes_of_pairs->at(static_cast<int>(from), static_cast<int>(to)));
        if (bytes == 0) return;
        LOCKSTEP_CHECK(bytes == in_bytes && bytes == out_bytes, "both know what moves");
        std::memcpy(target, source, bytes);
        break;
      case schedules::Comm::all_gather:
        bytes = in_bytes;
        std::memcpy(target + from * bytes, source, bytes);
        break;
      case schedules::Comm::all_to_all:
        bytes = in_bytes / ranks;
        std::memcpy(target + from * bytes, source + to * bytes, bytes);
        break;
      default: {
        bytes = out_bytes;
        const std::int64_t elems = moves[to].output.elems;
        const kernels::In term{source + to * bytes, moves[to].output.dtype, elems};
        if (from == 0) {
          std::memcpy(target, term.data, bytes);
        } else {
          const kernels::Out sum = moves[to].output;
          kernels::run(kernels::ResidualAdd{.count = elems, .a = {target, sum.dtype, elems}, .b = term, .y = sum},
                       workspace_.where);
        }
      }
    }
    if (from != to) sent_bytes_[from] += static_cast<double>(bytes);
  }

  const Workspace workspace_;
  std::vector<std::unique_ptr<ContextPlan>> plans_;
  std::vector<std::unique_ptr<ContextAttention>> ranks_;
  std::vector<double> sent_bytes_;
};

}  // namespace lockstep::parallel
