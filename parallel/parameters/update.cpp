// The calls of a store that run once per step: the norm, the check for overflow, the optimizer.
#include <algorithm>
#include <cstring>
#include <vector>

#include "kernels/base/thread_pool.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/reduce/reduction.h"
#include "parallel/parameters/device_memory.h"
#include "parallel/parameters/store_data.h"

namespace lockstep::parallel {
namespace {

// sum = sum of terms, in their order; many terms take several passes.
void add_up(const Tensor& terms, const kernels::Out& sum, const kernels::Context& where) {
  constexpr std::int64_t kMostAtOnce = 256;
  for (std::int64_t begin = 0; begin < terms.elems(); begin += kMostAtOnce) {
    kernels::Reduction pass{.count = 1, .num_sources = 0, .dtype = terms.dtype()};
    if (begin > 0) pass.sources.push_back({sum.data, sum.dtype, sum.elems});
    const std::int64_t end = std::min(begin + kMostAtOnce, terms.elems());
    for (std::int64_t term = begin; term < end; ++term) pass.sources.push_back(terms.in(term, 1));
    pass.num_sources = static_cast<std::int64_t>(pass.sources.size());
    pass.destination = sum;
    kernels::run(pass, where);
  }
}

}  // namespace

void ParameterStore::sum_of_squares(const std::function<bool(std::size_t)>& counts, const kernels::Out& sum,
                                    const kernels::Context& where) {
  if (data_->is_offloaded(workload::OffloadKind::gradients)) {
    LOCKSTEP_CHECK(std::all_of(data_->buckets.begin(), data_->buckets.end(),
                               [](const Bucket& bucket) { return bucket.has_offloaded_gradient; }),
                   "gradients are used before they were reduced");
    return add_up(data_->squares, sum, where);
  }
  std::vector<kernels::In> inputs;
  for (Bucket& bucket : data_->buckets) {
    for (const FlatRange range : bucket.own_ranges(counts)) inputs.push_back(data_->reduced_gradient(bucket).in(range));
  }
  if (inputs.empty()) {
    set_zero(data_->memory.device(), where, sum);
    return;
  }
  const Tensor sums =
      data_->memory.make(MemoryKind::buffers, core::DType::f64, static_cast<std::int64_t>(inputs.size()));
  std::int64_t term = 0;
  for (const kernels::In& x : inputs) {
    kernels::run(kernels::SumOfSquares{.count = x.elems, .x = x, .sum = sums.out(term++, 1)}, where);
  }
  add_up(sums, sum, where);
}

namespace {

kernels::InOut part_of(const kernels::InOut& all, std::int64_t begin, std::int64_t count) {
  return {all.as<std::byte>() + static_cast<std::int64_t>(core::size_of(all.dtype)) * begin, all.dtype, count};
}

void take_over(const kernels::InOut& offloaded, kernels::InOut& view) {
  if (offloaded.given()) view = offloaded;
}

}  // namespace

ShardViews ParameterStore::Data::views_on_device(Bucket& of, FlatRange range, const OffloadedShards::Uses& uses) {
  constexpr auto kGradients = workload::OffloadKind::gradients;
  const bool gradients =
      !is_offloaded(kGradients) && uses[static_cast<std::size_t>(kGradients)] != OffloadedShards::Use::none;
  const auto view = [&](const FlatTensor& tensor) {
    return tensor.tensor.given() ? tensor.inout(range) : kernels::InOut{};
  };
  return {.master = view(narrow_weights() ? of.master : of.weights),
          .first_moment = view(of.first_moment),
          .second_moment = view(of.second_moment),
          .gradient = gradients ? view(reduced_gradient(of)) : kernels::InOut{},
          .weights = view(of.weights)};
}

void ParameterStore::Data::visit_shards(std::size_t first_bucket, std::size_t count, const OffloadedShards::Uses& uses,
                                        const VisitPart& visit) {
  if (!offloaded) {
    for (std::size_t b = first_bucket; b < first_bucket + count; ++b) {
      visit(buckets[b], buckets[b].own, views_on_device(buckets[b], buckets[b].own, uses));
    }
    return;
  }
  offloaded->visit_buckets(first_bucket, count, uses,
                           [&](const OffloadedShards::Piece& piece, const ShardViews& brought) {
                             Bucket& of = buckets[piece.bucket];
                             ShardViews views = views_on_device(of, piece.range, uses);
                             take_over(brought.master, views.master);
                             take_over(brought.first_moment, views.first_moment);
                             take_over(brought.second_moment, views.second_moment);
                             take_over(brought.gradient, views.gradient);
                             take_over(brought.weights, views.weights);
                             visit(of, piece.range, views);
                           });
}

void ParameterStore::Data::step_range(FlatRange range, const ShardViews& views, std::int64_t begin,
                                      kernels::OptimizerStep step, const kernels::Context& on) const {
  const auto here = [&](const kernels::InOut& view) {
    return view.given() ? part_of(view, range.begin - begin, range.count()) : view;
  };
  step.count = range.count();
  step.grad = here(views.gradient).in();
  step.master = here(views.master);
  step.m = here(views.first_moment);
  step.v = here(views.second_moment);
  if (narrow_weights()) step.weights = here(views.weights).out();
  kernels::run(step, on);
}

void ParameterStore::Data::step_part(Bucket& of, FlatRange part, const ShardViews& views,
                                     const kernels::OptimizerStep& step, const kernels::Context& on) {
  kernels::OptimizerStep here = step;
  here.kind = options.optimizer;
  here.narrow_weights = narrow_weights();
  for (const bool decays : {false, true}) {
    here.numbers.decay = decays ? step.numbers.decay : 0;
    const auto chosen = [&](std::size_t i) { return parameters[of.members[i]].decays == decays; };
    for (const FlatRange range : of.flat.ranges_in(part, chosen)) step_range(range, views, part.begin, here, on);
  }
}

void ParameterStore::Data::others_changed(Bucket& of) {
  LOCKSTEP_CHECK(of.weights_are != Bucket::Weights::gathering, "weights change while they are gathered");
  of.gathered.reset();
  of.secondary_is_made = false;
  if (stage > 0) of.weights_are = Bucket::Weights::sharded;
}

void ParameterStore::Data::update(std::size_t first_bucket, std::size_t count, kernels::OptimizerStep step) {
  copy_held();
  ++versions.newest;
  versions.read = nullptr;
  if (offloaded) host_copies = {};
  using Use = OffloadedShards::Use;
  visit_shards(first_bucket, count, {Use::changes, Use::reads, Use::changes},
               [&](Bucket& of, FlatRange part, const ShardViews& views) { step_part(of, part, views, step, where); });
  for (std::size_t b = first_bucket; b < first_bucket + count; ++b) others_changed(buckets[b]);
}

namespace {

kernels::OptimizerStep scheduled(const kernels::OptimizerNumbers& optimizer,
                                 const ParameterStore::UpdateOnDevice& numbers) {
  return {.count = 0, .scheduled = true, .numbers = optimizer, .clip = numbers.factor, .schedule = numbers.schedule};
}

}  // namespace

void ParameterStore::update(const kernels::OptimizerNumbers& optimizer, const UpdateOnDevice& numbers) {
  data_->update(0, data_->buckets.size(), scheduled(optimizer, numbers));
}

void ParameterStore::update(std::int32_t index, const kernels::OptimizerNumbers& optimizer,
                            const UpdateOnDevice& numbers) {
  Bucket& bucket = data_->bucket(index);
  data_->update(static_cast<std::size_t>(index), 1, scheduled(optimizer, numbers));
  if (data_->options.frees_gradients) bucket.gradient.tensor.reset();
}

void ParameterStore::update(const kernels::OptimizerNumbers& optimizer, std::int64_t step, float factor) {
  if (!data_->number_one.given()) data_->number_one = make_scalar(data_->memory, data_->where, 1);
  data_->update(0, data_->buckets.size(),
                {.count = 0, .numbers = optimizer, .step = step, .grad_scale = factor, .clip = data_->number_one.in()});
  if (queue_of(data_->where) == nullptr) data_->number_one.reset();  // without queued work, remaking it does not wait
}

void ParameterStore::keep_gradients() {
  data_->offloaded->keep_gradients();
}

void ParameterStore::delayed_update(const kernels::OptimizerNumbers& optimizer, std::int64_t step, float factor) {
  kernels::ThreadPool this_thread(1);
  const kernels::Context on_host(this_thread);
  const float one = 1;
  const kernels::OptimizerStep args{
      .count = 0, .numbers = optimizer, .step = step, .grad_scale = factor, .clip = {&one, core::DType::f32, 1}};
  data_->offloaded->visit_delayed([&](const OffloadedShards::Piece& piece, const ShardViews& views) {
    const std::size_t bytes = kernels::size_bytes(views.weights.dtype, views.weights.elems);
    std::memset(views.weights.data, 0, bytes);  // padding belongs to no parameter
    data_->step_part(data_->buckets[piece.bucket], piece.range, views, args, on_host);
  });
}

void ParameterStore::take_update() {
  Data& data = *data_;
  data.host_copies = {};
  if (data.is_offloaded(workload::OffloadKind::parameters)) {
    data.offloaded->turn_weights();
  } else {
    for (std::size_t b = 0; b < data.buckets.size(); ++b) {
      data.offloaded->copy_next_weights(b, data.buckets[b].weights.out(data.buckets[b].own));
    }
  }
  give_up_gathered();
}

void ParameterStore::give_up_gathered() {
  for (Bucket& of : data_->buckets) data_->others_changed(of);
}

}  // namespace lockstep::parallel
