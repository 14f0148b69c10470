#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "kernels/top_k/top_k.h"
#include "parallel/compress/error_feedback.h"
#include "parallel/compress/reductions.h"

namespace lockstep::parallel {
namespace {

using core::DType;

// Each rank sends its largest elements to all ranks (all-gather): values, then indices, always the same number. Sums
// are in rank order; elements that no rank sends are 0. Lin et al. 2018, arXiv:1712.01887, without momentum correction.
class SparseAllReduce final : public collectives::Collective {
 public:
  SparseAllReduce(const GradientReduction& reduction, std::unique_ptr<collectives::Collective> gather, Memory& memory,
                  const kernels::Context& where)
      : elems_(reduction.elems),
        sent_(reduction.compression.sent_of(elems_)),
        at_(reduction.compression.way == CompressionWay::threshold ? static_cast<float>(reduction.compression.at) : 0),
        num_ranks_(reduction.num_ranks),
        rank_(reduction.rank),
        share_(reduction.op == core::ReduceOp::avg ? 1.0F / static_cast<float>(num_ranks_) : 1.0F),
        state_(reduction.compression.feedback ? reduction.state : nullptr),
        gather_(std::move(gather)),
        where_(where),
        messages_(memory.make(MemoryKind::buffers, DType::f32, 2 * sent_ * num_ranks_)) {
    if (state_ != nullptr) owed_.emplace(elems_, *state_, memory, where);
  }

  void run(const void* input, void* output) override {
    if (owed_) owed_->add({input, DType::f32, elems_});
    kernels::TopK take{.count = elems_, .k = sent_, .at = at_, .x = {input, DType::f32, elems_}};
    if (owed_) take.x = owed_->owed().in();
    take.values = {values(rank_), DType::f32, sent_};
    take.indices = {indices(rank_), DType::i32, sent_};
    kernels::run(take, where_);
    if (owed_) {
      for (std::int64_t i = 0; i < sent_; ++i) {
        if (const std::int32_t from = indices(rank_)[i]; from >= 0) owed_->owed().as<float>()[from] = 0;
      }
    }
    gather_->run(values(rank_), values(0));
    std::fill_n(static_cast<float*>(output), elems_, 0.0F);
    for (int rank = 0; rank < num_ranks_; ++rank) add(rank, output);
    if (state_ != nullptr) ++state_->calls;
  }

 private:
  float* values(int rank) const { return messages_.as<float>() + 2 * sent_ * rank; }
  std::int32_t* indices(int rank) const { return reinterpret_cast<std::int32_t*>(values(rank) + sent_); }

  void add(int rank, void* output) const {
    std::for_each_n(values(rank), sent_, [this](float& value) { value *= share_; });
    kernels::ScatterAdd sum{elems_, sent_};
    sum.values = {values(rank), DType::f32, sent_};
    sum.indices = {indices(rank), DType::i32, sent_};
    sum.y = {output, DType::f32, elems_};
    kernels::run(sum, where_);
  }

  const std::int64_t elems_;
  const std::int64_t sent_;
  const float at_;
  const int num_ranks_;
  const int rank_;
  const float share_;                                      // weight of a rank's values in the result
  CompressionState* const state_;                          // with error feedback
  const std::unique_ptr<collectives::Collective> gather_;  // in place
  const kernels::Context where_;
  const Tensor messages_;
  std::optional<ErrorFeedback> owed_;
};

}  // namespace

backends::Prepared prepare_sparse(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                  const kernels::Context& where) {
  collectives::Operation operation;
  operation.kind = collectives::Kind::all_gather;
  operation.count = 2 * reduction.compression.sent_of(reduction.elems);
  operation.in_place = true;
  backends::Prepared prepared = prepare(operation, "auto");
  prepared.collective = std::make_unique<SparseAllReduce>(reduction, std::move(prepared.collective), memory, where);
  prepared.algorithm +=
      "+" + std::string(workload::compression_names().at(static_cast<std::size_t>(reduction.compression.way)));
  prepared.plan.reset();
  return prepared;
}

}  // namespace lockstep::parallel
