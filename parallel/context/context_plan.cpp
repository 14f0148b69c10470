#include <array>

#include "core/error.h"
#include "parallel/context/block_attention.h"
#include "parallel/context/context_attention.h"
#include "parallel/context/head_attention.h"
#include "parallel/context/score_attention.h"

namespace lockstep::parallel {
namespace {

using workload::ContextExchange;
using workload::ContextTurn;
using workload::ExchangePlace;

const ContextExchange& exchange_at(const ContextTurn& turn, const ExchangePlace& place) {
  return (place.results ? turn.results : turn.operands)[static_cast<std::size_t>(place.index)];
}

}  // namespace

ContextPlan::ContextPlan(const ContextLayer& layer) : layer_(layer), list_(workload::context_list(layer.shape)) {
  if (const std::string refusal = workload::why_invalid(layer_); !refusal.empty()) throw core::usage_error(refusal);
  const std::int32_t ranks = layer_.shape.ranks;
  for (const bool backward : {false, true}) {
    Matrices& matrices = matrices_[backward ? 1 : 0];
    for (std::int32_t t = 0; t < list_.turns(); ++t) {
      for (const ExchangePlace& place : workload::places_of(turn(backward, t), t)) {
        if (exchange(backward, place).comm != schedules::Comm::shift) continue;
        collectives::CountMatrix matrix{
            ranks, std::vector<std::int64_t>(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks))};
        for (std::int32_t from = 0; from < ranks; ++from) {
          const ContextExchange& sent = exchange_at(list_.turn(from, backward, t), place);
          for (const workload::ContextMessage& send : sent.sends) {
            matrix.counts[static_cast<std::size_t>(from) * static_cast<std::size_t>(ranks) +
                          static_cast<std::size_t>(send.peer)] = layer_.bytes(sent.array);
          }
        }
        const auto number = static_cast<std::size_t>(place.number());
        if (matrices.size() <= number) matrices.resize(number + 1);
        matrices[number] = std::make_shared<const collectives::CountMatrix>(std::move(matrix));
      }
    }
  }
}

const ContextExchange& ContextPlan::exchange(bool backward, const ExchangePlace& place) const {
  return exchange_at(turn(backward, place.turn), place);
}

std::shared_ptr<const collectives::CountMatrix> ContextPlan::bytes_of_pairs(bool backward,
                                                                            const ExchangePlace& place) const {
  const Matrices& matrices = matrices_[backward ? 1 : 0];
  const auto number = static_cast<std::size_t>(place.number());
  return number < matrices.size() ? matrices[number] : nullptr;
}

std::unique_ptr<ContextAttention> make_context_attention(const ContextPlan& plan, const Workspace& workspace) {
  switch (plan.layer().shape.way) {
    case workload::ContextWay::ulysses:
      return std::make_unique<HeadAttention>(plan, workspace);
    case workload::ContextWay::colossal:
      return std::make_unique<ScoreAttention>(plan, workspace);
    default:
      return std::make_unique<BlockAttention>(plan, workspace);
  }
}

}  // namespace lockstep::parallel
