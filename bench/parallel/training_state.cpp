#include "bench/parallel/training_state.h"

#include <algorithm>
#include <cstddef>

#include "core/error.h"
#include "core/narrow_float.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::ParameterStore;

ParameterStore& store_of(trainer::RankModel& model) {
  LOCKSTEP_CHECK(model.stages().size() == 1, "the model has one stage");
  return *model.stages().front().store;
}

template <class T>
void append_widened(const kernels::InOut& view, std::vector<float>& to) {
  for (std::int64_t i = 0; i < view.elems; ++i) to.push_back(core::to_float(view.as<T>()[i]));
}

void append(const kernels::InOut& view, std::vector<float>& to) {
  switch (view.dtype) {
    case core::DType::bf16:
      return append_widened<core::BFloat16>(view, to);
    case core::DType::f16:
      return append_widened<core::Float16>(view, to);
    default:
      LOCKSTEP_CHECK(view.dtype == core::DType::f32, "gradients are f32, bf16 or f16");
      to.insert(to.end(), view.as<float>(), view.as<float>() + view.elems);
  }
}

}  // namespace

std::vector<std::int64_t> elems_of_buckets(trainer::RankModel& model) {
  const ParameterStore& store = store_of(model);
  std::vector<std::int64_t> elems;
  for (std::int32_t b = 0; b < store.num_buckets(); ++b) elems.push_back(store.padded_elems(b));
  return elems;
}

std::vector<float> gradients_of(trainer::RankModel& model) {
  ParameterStore& store = store_of(model);
  std::vector<float> all;
  std::vector<std::byte> on_host;
  for (std::int32_t b = 0; b < store.num_buckets(); ++b) {
    kernels::InOut gradient = store.own_gradient(b);
    on_host.resize(static_cast<std::size_t>(gradient.elems) * core::size_of(gradient.dtype));
    model.memory().device().copy_to_host(on_host.data(), gradient.data, on_host.size());
    gradient.data = on_host.data();
    append(gradient, all);
  }
  return all;
}

std::vector<float> masters_of(trainer::RankModel& model) {
  std::vector<float> all;
  for (const ParameterStore::Run& run : store_of(model).runs(ParameterStore::State::master)) {
    all.insert(all.end(), run.data, run.data + run.count);
  }
  return all;
}

void start_again(trainer::RankModel& model, const std::vector<float>& masters) {
  ParameterStore& store = store_of(model);
  const float* from = masters.data();
  for (const ParameterStore::Run& run : store.runs(ParameterStore::State::master)) {
    std::copy_n(from, run.count, run.data);
    from += run.count;
  }
  store.store_back(ParameterStore::State::master);
  store.masters_changed();
  for (const auto moment : {ParameterStore::State::first_moment, ParameterStore::State::second_moment}) {
    for (const ParameterStore::Run& run : store.runs(moment)) std::fill_n(run.data, run.count, 0.0F);
    store.store_back(moment);
  }
  model.collectives().forget();
}

}  // namespace lockstep::parallel_bench
