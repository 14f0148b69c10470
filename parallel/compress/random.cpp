#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "core/random.h"
#include "parallel/compress/error_feedback.h"
#include "parallel/compress/reductions.h"

namespace lockstep::parallel {
namespace {

using core::DType;

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
