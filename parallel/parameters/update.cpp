// What a store does once a step: the norm, the check for overflow, the optimizer.
#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/optimizer/optimizer.h"
#include "parallel/parameters/device_memory.h"
#include "parallel/parameters/store_data.h"

namespace lockstep::parallel {
namespace {

// One result of a kernel for each input, all on the device until the last is queued.
template <class T, class Run>
std::vector<T> results_of(const std::vector<kernels::In>& inputs, core::DType dtype, Memory& memory,
                          const kernels::Context& where, Run&& run) {
  std::vector<T> on_host;
  if (inputs.empty()) return on_host;
  const Tensor results = memory.make(MemoryKind::buffers, dtype, static_cast<std::int64_t>(inputs.size()));
  for (const kernels::In& input : inputs) {
    run(input, results.out(static_cast<std::int64_t>(on_host.size()), 1));
    on_host.emplace_back();
  }
  finish(where);
  memory.device().copy_to_host(on_host.data(), results.data(), on_host.size() * sizeof(T));
  return on_host;
}

}  // namespace

double ParameterStore::sum_of_squares(const std::function<bool(std::size_t)>& counts) {
  std::vector<kernels::In> inputs;
  for (Bucket& bucket : data_->buckets) {
    for (const FlatRange range : bucket.own_ranges(counts)) inputs.push_back(data_->reduced_gradient(bucket).in(range));
  }
  const std::vector<double> sums = results_of<double>(
      inputs, core::DType::f64, data_->memory, data_->where, [this](const kernels::In& x, const kernels::Out& sum) {
        kernels::run(kernels::SumOfSquares{.count = x.elems, .x = x, .sum = sum}, data_->where);
      });
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

bool ParameterStore::gradients_are_finite() {
  std::vector<kernels::In> inputs;
  for (Bucket& bucket : data_->buckets) {
    inputs.push_back(data_->reduced_gradient(bucket).in(bucket.own));
  }
  const std::vector<std::int32_t> finite = results_of<std::int32_t>(
      inputs, core::DType::i32, data_->memory, data_->where, [this](const kernels::In& x, const kernels::Out& result) {
        kernels::run(kernels::FiniteCheck{.count = x.elems, .x = x, .finite = result}, data_->where);
      });
  return std::all_of(finite.begin(), finite.end(), [](std::int32_t one) { return one != 0; });
}

void ParameterStore::Data::step_range(Bucket& of, FlatRange range, kernels::AdamW adamw) {
  adamw.count = range.count();
  adamw.narrow_weights = narrow_weights();
  adamw.grad = reduced_gradient(of).in(range);
  adamw.master = of.masters().inout(range);
  adamw.m = of.first_moment.inout(range);
  adamw.v = of.second_moment.inout(range);
  if (narrow_weights()) adamw.weights = of.weights.out(range);
  kernels::run(adamw, where);
}

void ParameterStore::Data::others_are_stale(Bucket& of) {
  of.stale = stage == 1 || stage == 2;
  of.gathered.reset();
}

void ParameterStore::update(const AdamWOptions& adamw, std::int64_t step, float factor) {
  finish(data_->where);  // the copy of the scalar waits for no kernel
  const Tensor one = make_scalar(data_->memory, 1);
  kernels::AdamW args{.count = 0,
                      .rate = adamw.rate,
                      .beta1 = adamw.beta1,
                      .beta2 = adamw.beta2,
                      .epsilon = adamw.epsilon,
                      .step = step,
                      .grad_scale = factor,
                      .clip = one.in()};
  for (Bucket& bucket : data_->buckets) {
    for (const bool decays : {false, true}) {
      args.decay = decays ? adamw.decay : 0;
      const auto chosen = [&](std::size_t p) { return data_->parameters[p].decays == decays; };
      for (const FlatRange range : bucket.own_ranges(chosen)) data_->step_range(bucket, range, args);
    }
    data_->others_are_stale(bucket);
  }
  finish(data_->where);
}

}  // namespace lockstep::parallel
