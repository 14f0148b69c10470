// For tests: a device with its own memory, the stores of several ranks in one thread, and their training.
#pragma once

#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "core/random.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/store.h"
#include "testing/core/fixtures.h"
#include "testing/core/forwarding_device.h"

namespace lockstep::parallel {

// A device whose memory the host may access by copies only.
class DistantDevice final : public core::ForwardingDevice {
 public:
  // The result of `open` is kept during each copy: for memory that is closed to everything else.
  using Open = std::function<std::shared_ptr<void>()>;
  explicit DistantDevice(
      std::unique_ptr<core::Device> cpu = core::make_cpu_device(), Open open = [] { return nullptr; })
      : ForwardingDevice(std::move(cpu)), open_(std::move(open)) {}

  void copy_to_device(void* to, const void* from, std::size_t size_bytes) override {
    const std::shared_ptr<void> opened = open_();
    ForwardingDevice::copy_to_device(to, from, size_bytes);
  }
  void copy_to_host(void* to, const void* from, std::size_t size_bytes) override {
    const std::shared_ptr<void> opened = open_();
    ForwardingDevice::copy_to_host(to, from, size_bytes);
  }

 private:
  const Open open_;
};

// The stores of several ranks in one thread: collectives are loops, in the ranks' order.

inline std::vector<workload::Parameter> small_model() {
  return {
      {.name = "wte", .shape = {11, 6}, .split = workload::Split::rows, .part = 0, .deviation = 0.5F, .decays = true},
      {.name = "ln", .shape = {6}, .part = 1, .fill = 1},
      {.name = "qkv",
       .shape = {12, 6},
       .split = workload::Split::rows,
       .blocks = {4, 4, 4},
       .part = 1,
       .deviation = 1,
       .decays = true},
      {.name = "proj", .shape = {6, 8}, .split = workload::Split::columns, .part = 1, .deviation = 2, .decays = true},
      {.name = "bias", .shape = {70}, .part = 2, .fill = 0.25F},
  };
}
// The first has members of two parts.
inline std::vector<std::vector<std::size_t>> small_buckets() {
  return {{4, 3}, {2, 1}, {0}};
}

inline float element(core::DType dtype, const void* data, std::int64_t i) {
  if (dtype == core::DType::f32) return static_cast<const float*>(data)[i];
  if (dtype == core::DType::bf16) return core::to_float(static_cast<const core::BFloat16*>(data)[i]);
  return core::to_float(static_cast<const core::Float16*>(data)[i]);
}
inline std::vector<float> floats_of(const kernels::In& view) {
  std::vector<float> values;
  for (std::int64_t i = 0; i < view.elems; ++i) values.push_back(element(view.dtype, view.data, i));
  return values;
}
inline kernels::In read(const kernels::Out& view) {
  return {view.data, view.dtype, view.elems};
}
inline void put(const kernels::Out& to, std::int64_t begin, const std::vector<float>& values) {
  for (std::size_t k = 0; k < values.size(); ++k) {
    const std::size_t i = static_cast<std::size_t>(begin) + k;
    if (to.dtype == core::DType::f32) to.as<float>()[i] = values[k];
    if (to.dtype == core::DType::bf16) to.as<core::BFloat16>()[i] = core::to_bfloat16(values[k]);
    if (to.dtype == core::DType::f16) to.as<core::Float16>()[i] = core::to_float16(values[k]);
  }
}

// Every choice of dtypes.
inline const StoreOptions kDtypes[] = {{},
                                       {.compute = core::DType::bf16},
                                       {.compute = core::DType::bf16, .gradient = core::DType::bf16},
                                       {.compute = core::DType::f16, .gradient = core::DType::f16}};

inline StoreOptions at_stage(StoreOptions options, std::int32_t zero) {
  options.zero = zero;
  return options;
}

inline std::string text_of(const StoreOptions& options, std::int32_t shards) {
  return std::string(core::short_name_of(options.compute)) + " " + std::string(core::short_name_of(options.gradient)) +
         ", stage " + std::to_string(options.zero) + " of " + std::to_string(shards);
}

struct RanksSetup {
  workload::TensorRank place = {};
  std::vector<workload::Parameter> parameters = small_model();
  int num_threads = 1;
  bool distant = false;  // memory is not the host's
  workload::OffloadPlaces offload = {};
  bool delays = false;  // updates
  std::vector<std::vector<std::size_t>> buckets = small_buckets();
};

struct Rank {
  Rank(const kernels::Context& where, const RanksSetup& setup, const StoreOptions& options)
      : device(setup.distant ? std::make_unique<DistantDevice>() : core::make_cpu_device()),
        store(memory, where, setup.parameters, setup.place, setup.buckets, with_offload(options, setup)) {}
  StoreOptions with_offload(StoreOptions options, const RanksSetup& setup) const {
    constexpr std::int64_t kElems = 5;  // several pieces a bucket
    const auto rooms = [&](workload::Offload place) -> MakeStateRoom {
      if (place == workload::Offload::none) return {};
      if (place == workload::Offload::host) return rooms_of_host(*device);
      return rooms_in_files(folder.path(), std::chrono::seconds(30));
    };
    options.offload = {.optimizer = rooms(setup.offload.optimizer),
                       .gradients = rooms(setup.offload.gradients),
                       .parameters = rooms(setup.offload.parameters),
                       .piece_elems = kElems,
                       .counts_in_norm = [](std::size_t) { return true; },
                       .next_weights = rooms(setup.delays ? workload::Offload::host : workload::Offload::none)};
    return options;
  }

  core::TemporaryFolder folder;
  std::unique_ptr<core::Device> device;
  Memory memory{*device};
  ParameterStore store;
};

class Ranks {
 public:
  Ranks(StoreOptions options, std::int32_t shards, const RanksSetup& setup = {})
      : pool_(setup.num_threads), options_(options), offload_(setup.offload) {
    options_.shards = shards;
    for (options_.shard = 0; options_.shard < shards; ++options_.shard) {
      ranks_.push_back(std::make_unique<Rank>(kernels::Context(pool_), setup, options_));
    }
  }

  const StoreOptions& options() const { return options_; }
  std::size_t size() const { return ranks_.size(); }
  Rank& at(std::size_t r) { return *ranks_[r]; }
  ParameterStore& store(std::size_t r) { return ranks_[r]->store; }
  void each(const std::function<void(ParameterStore&)>& visit) {
    for (const auto& rank : ranks_) visit(rank->store);
  }
  void each_bucket(const std::function<void(std::int32_t)>& visit) {
    for (std::int32_t b = 0; b < store(0).num_buckets(); ++b) visit(b);
  }

  void gather(std::int32_t bucket) {
    std::vector<float> whole;
    std::vector<ParameterStore::Gathering> gatherings;
    for (const auto& rank : ranks_) {
      if (offload_.parameters != workload::Offload::none) rank->store.load(bucket);
      const auto& gathering = gatherings.emplace_back(rank->store.gather(bucket));
      const std::vector<float> shard = floats_of(gathering.shard());
      whole.insert(whole.end(), shard.begin(), shard.end());
    }
    for (ParameterStore::Gathering& gathering : gatherings) {
      put(gathering.whole(), 0, whole);
      std::move(gathering).done();
    }
  }
  void gather_all() {
    if (options_.zero > 0 && size() > 1) each_bucket([this](std::int32_t b) { gather(b); });
  }
  void reshard_all() {
    each_bucket([this](std::int32_t b) { each([b](ParameterStore& store) { store.reshard(b); }); });
  }

  // Sums in f32, in the ranks' order, rounded once.
  std::vector<ParameterStore::Reduction> sum_over_shards(std::int32_t bucket) {
    std::vector<ParameterStore::Reduction> reductions;
    std::vector<float> sum;
    for (const auto& rank : ranks_) {
      const auto& reduction = reductions.emplace_back(rank->store.reduce(bucket));
      const std::vector<float> mine = floats_of(reduction.whole());
      sum.resize(mine.size(), -0.0F);
      for (std::size_t i = 0; i < mine.size(); ++i) sum[i] += mine[i];
    }
    const bool whole = options_.zero == 0 || size() == 1;
    for (std::size_t r = 0; r < size(); ++r) {
      const auto count = static_cast<std::ptrdiff_t>(reductions[r].result().elems);
      const auto begin = sum.begin() + (whole ? 0 : static_cast<std::ptrdiff_t>(r) * count);
      put(reductions[r].result(), 0, {begin, begin + count});
    }
    return reductions;
  }
  std::vector<ParameterStore::Landed> landed_of(std::int32_t bucket) {
    std::vector<ParameterStore::Landed> landed;
    for (ParameterStore::Reduction& reduction : sum_over_shards(bucket)) {
      landed.push_back(std::move(reduction).landed());
    }
    return landed;
  }
  kernels::Context lane() { return kernels::Context(pool_); }
  void reduce(std::int32_t bucket) {
    std::vector<ParameterStore::Landed> landed = landed_of(bucket);
    for (std::size_t r = 0; r < size(); ++r) {
      if (offload_.gradients == workload::Offload::none) {
        std::move(landed[r]).add(lane());
      } else {
        store(r).offload(bucket, std::move(landed[r]), lane());
      }
    }
  }
  void reduce_all() {
    each_bucket([this](std::int32_t b) { reduce(b); });
  }

  // The elements that all ranks own together, by parameter. Elements that none owns are NaN; two ranks that own one are
  // a failure.
  std::vector<std::vector<float>> whole(ParameterStore::State state) {
    std::vector<std::vector<float>> all;
    for (const workload::Parameter& parameter : store(0).parameters()) {
      all.emplace_back(static_cast<std::size_t>(parameter.elems()), std::numeric_limits<float>::quiet_NaN());
    }
    for (const auto& rank : ranks_) {
      for (const ParameterStore::Run& run : rank->store.runs(state)) {
        for (std::int64_t i = 0; i < run.count; ++i) {
          float& element = all.at(run.parameter).at(static_cast<std::size_t>(run.whole_begin + i));
          LOCKSTEP_CHECK(std::isnan(element) || options_.zero == 0, "two ranks own one element");
          element = run.data[i];
        }
      }
    }
    return all;
  }

 private:
  kernels::ThreadPool pool_;
  StoreOptions options_;
  workload::OffloadPlaces offload_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

// The gradient that a rank makes of an element with a microbatch.
using Gradients = std::function<float(std::size_t rank, int microbatch, std::size_t parameter, std::int64_t element)>;

// Adds a microbatch's gradients on all ranks, last part first, and checks that weights can be read meanwhile.
inline void backward(Ranks& ranks, int microbatch, const Gradients& gradients) {
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ParameterStore& store = ranks.store(r);
    for (const std::int32_t part : {2, 1, 0}) {
      ParameterStore::PartGradients gradients_of_part = store.gradients(part);
      for (std::size_t p = 0; p < store.parameters().size(); ++p) {
        if (store.parameters()[p].part != part) continue;
        const kernels::InOut gradient = gradients_of_part.of(p);
        LOCKSTEP_CHECK(gradient.elems == store.weight(p).elems, "weights are there, as large as gradients");
        for (std::int64_t i = 0; i < gradient.elems; ++i) {
          gradient.as<float>()[i] += gradients(r, microbatch, p, i);
        }
      }
      std::move(gradients_of_part).commit();
    }
  }
}

// Sums what has landed on the replicas of a set of shards: each shard over all replicas.
inline void reduce_over(std::vector<std::unique_ptr<Ranks>>& replicas, std::int32_t bucket) {
  std::vector<std::vector<ParameterStore::Landed>> landed;  // [replica][shard]
  for (const auto& set : replicas) landed.push_back(set->landed_of(bucket));
  for (std::size_t r = 0; r < replicas.front()->size(); ++r) {
    std::vector<float> sum;
    for (const auto& set : landed) {
      const std::vector<float> mine = floats_of(set[r].shard().in());
      sum.resize(mine.size(), -0.0F);
      for (std::size_t i = 0; i < mine.size(); ++i) sum[i] += mine[i];
    }
    for (std::size_t set = 0; set < landed.size(); ++set) {
      put(landed[set][r].shard().out(), 0, sum);
      std::move(landed[set][r]).add(replicas[set]->lane());
    }
  }
}

// Training: steps of AdamW with gradients that are a function of step, rank, microbatch and element.

inline constexpr int kSteps = 3;
inline constexpr kernels::OptimizerNumbers kAdamW{.rate = 0.01F, .beta2 = 0.95F, .decay = 0.1F};
inline constexpr float kFactor = 0.5F;

inline std::uint64_t bits_of(int step, std::size_t rank, int microbatch, std::size_t parameter, std::int64_t element) {
  const auto place = static_cast<std::uint64_t>(element) * 64 + parameter;
  return core::hash64(static_cast<std::uint64_t>(step), rank * 8 + static_cast<std::uint64_t>(microbatch), place);
}
// -3 to 3: sums of up to 32 are exact in 8 bits, so that their order says nothing.
inline Gradients small_integers(int step) {
  return [step](std::size_t rank, int microbatch, std::size_t parameter, std::int64_t element) {
    return static_cast<float>(bits_of(step, rank, microbatch, parameter, element) % 7) - 3;
  };
}
inline Gradients fractions(int step) {
  return [step](std::size_t rank, int microbatch, std::size_t parameter, std::int64_t element) {
    const std::uint64_t bits = bits_of(step, rank, microbatch, parameter, element);
    return static_cast<float>(static_cast<double>(bits >> 11) * 0x1p-53 - 0.5);
  };
}

enum class When : std::uint8_t {
  each_microbatch,  // as stages 2 and 3 do; of the others the last
  late,             // the same, but after all microbatches are done
  once,             // gradients of all microbatches at once
};

inline void train(Ranks& ranks, int microbatches, When when, Gradients (*gradients_of)(int step)) {
  const bool scatters = ranks.options().zero >= 2 && ranks.size() > 1;
  const bool each_time = scatters && when == When::each_microbatch;
  ranks.each([](ParameterStore& store) { store.initialize(17); });
  for (int step = 1; step <= kSteps; ++step) {
    ranks.each([](ParameterStore& store) { store.zero_gradients(); });
    ranks.gather_all();
    const Gradients gradients = gradients_of(step);
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      backward(ranks, microbatch, gradients);
      if (each_time) ranks.reduce_all();
    }
    const int left = each_time ? 0 : scatters && when == When::late ? microbatches : 1;
    for (int i = 0; i < left; ++i) ranks.reduce_all();
    ranks.reshard_all();
    ranks.each([step](ParameterStore& store) { store.update(kAdamW, step, kFactor); });
  }
  ranks.gather_all();
}

}  // namespace lockstep::parallel
