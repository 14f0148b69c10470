#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/random.h"
#include "kernels/compress/compress.h"
#include "parallel/compress/compress.h"

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

namespace {

// All ranks draw the same elements, so that an all-reduce of their values adds them up. The elements are split into as
// many stretches as elements are sent, and one is drawn from each: every element is equally likely, and indices ascend.
class RandomAllReduce final : public collectives::Collective {
 public:
  RandomAllReduce(const GradientReduction& reduction, std::unique_ptr<collectives::Collective> inner, Memory& memory,
                  const kernels::Context& where)
      : elems_(reduction.elems),
        seed_(reduction.seed),
        state_(*reduction.state),
        inner_(std::move(inner)),
        values_(memory.make(MemoryKind::buffers, DType::f32, reduction.compression.sent_of(elems_))) {
    if (reduction.compression.feedback) owed_.emplace(elems_, state_, memory, where);
  }

  void run(const void* input, void* output) override {
    const auto* x = static_cast<const float*>(input);
    if (owed_) owed_->add({input, DType::f32, elems_});
    float* const owed = owed_ ? owed_->owed().as<float>() : nullptr;
    auto* const values = values_.as<float>();
    for (std::int64_t i = 0; i < values_.elems(); ++i) {
      const std::int64_t from = drawn(i);
      values[i] = owed != nullptr ? std::exchange(owed[from], 0.0F) : x[from];
    }
    inner_->run(values, values);
    auto* const y = static_cast<float*>(output);
    std::fill_n(y, elems_, 0.0F);
    for (std::int64_t i = 0; i < values_.elems(); ++i) y[drawn(i)] = values[i];
    ++state_.calls;
  }

 private:
  std::int64_t begin(std::int64_t stretch) const { return stretch * elems_ / values_.elems(); }
  std::int64_t drawn(std::int64_t stretch) const {
    const std::int64_t first = begin(stretch);
    const std::uint64_t bits =
        core::hash64(seed_, static_cast<std::uint64_t>(state_.calls), static_cast<std::uint64_t>(stretch));
    return first + static_cast<std::int64_t>(bits % static_cast<std::uint64_t>(begin(stretch + 1) - first));
  }

  const std::int64_t elems_;
  const std::uint64_t seed_;
  CompressionState& state_;
  const std::unique_ptr<collectives::Collective> inner_;  // in place
  const Tensor values_;
  std::optional<ErrorFeedback> owed_;
};

}  // namespace

backends::Prepared prepare_random(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                  const kernels::Context& where) {
  collectives::Operation operation;
  operation.count = reduction.compression.sent_of(reduction.elems);
  operation.op = reduction.op;
  operation.in_place = true;
  backends::Prepared prepared = prepare(operation, reduction.algorithm);
  prepared.collective = std::make_unique<RandomAllReduce>(reduction, std::move(prepared.collective), memory, where);
  prepared.algorithm += "+randomk";
  return prepared;
}

}  // namespace lockstep::parallel
