// A whole model on t tensor-parallel ranks and several pipeline stages, run piece by piece in one thread: what a worker
// does with threads, messages and collectives is done here by hand, so that a test sees the pieces alone.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/store.h"
#include "schedules/passes/passes.h"
#include "trainer/model/gpt_stage.h"
#include "workload/build_step.h"
#include "workload/parameters.h"

namespace lockstep::trainer::tests {

struct ModelOptions {
  GptShape shape;  // its tensor.index is of no account
  std::int32_t stages = 1;
  std::int32_t microbatches = 1;
  bool split = false;                       // input and weight gradients apart, the latter last of all
  bool patient = false;                     // collectives that overlap with kernels are done as late as possible
  bool lively = true;                       // values as lively() says, not GPT-2's initial ones
  core::DType gradient = core::DType::f32;  // as the store keeps gradients
  std::uint64_t seed = 1;
};

// One rank of one stage.
struct ModelRank {
  std::unique_ptr<core::Device> device = core::make_cpu_device();
  std::unique_ptr<parallel::Memory> memory;
  std::unique_ptr<parallel::ParameterStore> store;
  std::unique_ptr<GptStage> stage;

  ~ModelRank() {  // tensors go before the memory that they are from
    stage.reset();
    store.reset();
  }
  ModelRank() = default;
  ModelRank(ModelRank&&) = default;
  ModelRank& operator=(ModelRank&&) = default;
};

struct Text {
  std::vector<std::int32_t> tokens;
  std::vector<std::int32_t> targets;
};

inline Text random_text(const GptShape& shape, std::int32_t microbatch) {
  std::mt19937 random(17U + static_cast<std::uint32_t>(microbatch));
  Text text;
  for (std::int64_t i = 0; i < shape.rows(); ++i) {
    text.tokens.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(shape.model.vocabulary)));
    text.targets.push_back(static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(shape.model.vocabulary)));
  }
  return text;
}

inline float element(const void* data, core::DType dtype, std::int64_t i) {
  if (dtype == core::DType::bf16) return core::to_float(static_cast<const core::BFloat16*>(data)[i]);
  if (dtype == core::DType::f16) return core::to_float(static_cast<const core::Float16*>(data)[i]);
  return static_cast<const float*>(data)[i];
}

inline void set_element(void* data, core::DType dtype, std::int64_t i, float value) {
  if (dtype == core::DType::bf16) {
    static_cast<core::BFloat16*>(data)[i] = core::to_bfloat16(value);
  } else if (dtype == core::DType::f16) {
    static_cast<core::Float16*>(data)[i] = core::to_float16(value);
  } else {
    static_cast<float*>(data)[i] = value;
  }
}

// All ranks' sides of one collective.
inline void do_collective(schedules::Comm comm, const std::vector<GptStage::Exchange>& sides) {
  const auto ranks = static_cast<std::int64_t>(sides.size());
  const core::DType dtype = sides[0].input.dtype;
  const std::int64_t count = sides[0].input.elems;
  if (comm == schedules::Comm::all_gather) {
    for (const GptStage::Exchange& to : sides) {
      LOCKSTEP_CHECK(to.output.elems == ranks * count, "room for all");
      const std::size_t part_bytes = core::size_of(dtype) * static_cast<std::size_t>(count);
      for (std::size_t r = 0; r < sides.size(); ++r) {
        std::memcpy(static_cast<std::byte*>(to.output.data) + r * part_bytes, sides[r].input.data, part_bytes);
      }
    }
    return;
  }
  std::vector<float> sums(static_cast<std::size_t>(count));
  for (const GptStage::Exchange& from : sides) {
    for (std::int64_t i = 0; i < count; ++i) {
      sums[static_cast<std::size_t>(i)] += element(from.input.data, dtype, i);
    }
  }
  for (std::int64_t r = 0; r < ranks; ++r) {
    const kernels::Out& to = sides[static_cast<std::size_t>(r)].output;
    const bool scatters = comm == schedules::Comm::reduce_scatter;
    LOCKSTEP_CHECK(to.elems == (scatters ? count / ranks : count), "room for the sum, or for a share of it");
    const std::int64_t begin = scatters ? r * to.elems : 0;
    for (std::int64_t i = 0; i < to.elems; ++i) {
      set_element(to.data, dtype, i, sums[static_cast<std::size_t>(begin + i)]);
    }
  }
}

// Values by which nothing hides: biases are not 0, norms' factors not 1, and scores and logits not nearly equal.
inline std::vector<workload::Parameter> lively(std::vector<workload::Parameter> parameters) {
  for (workload::Parameter& one : parameters) {
    const bool is_factor = one.fill != 0;
    one.deviation = is_factor ? 1.0F : 0.3F;
    if (one.shape.size() == 2) one.deviation = 1 / std::sqrt(static_cast<float>(one.shape[1]));
  }
  return parameters;
}

class Model {
 public:
  Model(kernels::ThreadPool& pool, const ModelOptions& options) : options_(options), where_(pool) {
    options_.shape.layout.tp = options.shape.tensor.ranks;
    const workload::Layout& layout = options_.shape.layout;
    for (std::int32_t s = 0; s < options.stages; ++s) {
      places_.push_back(slice_of(options.shape.model, layout, options.stages, s));
      recipes_.push_back(recipe_of(options.shape.model, layout, places_.back()));
      ranks_.emplace_back();
      for (std::int32_t t = 0; t < options.shape.tensor.ranks; ++t) ranks_.back().push_back(make_rank(s, t));
    }
  }

  // One step over all microbatches; gradients are of the mean of the tokens' losses. Returns that mean.
  double step(Mode mode = Mode::train) {
    const double tokens = static_cast<double>(options_.shape.rows()) * options_.microbatches;
    each_rank([&](ModelRank& rank) {
      rank.store->zero_gradients();
      rank.stage->begin_step(mode, static_cast<float>(1 / tokens));
    });
    for (std::int32_t m = 0; m < options_.microbatches; ++m) forward(m, mode);
    bytes_after_forward_ = activation_bytes(ranks_[0][0]);
    if (mode == Mode::train) backward_of_all();
    logits_.clear();
    if (mode == Mode::generate) {
      for (ModelRank& rank : ranks_.back()) logits_.push_back(rank.stage->logits(0));
    }
    bytes_before_end_.clear();
    each_rank([&](ModelRank& rank) {
      bytes_before_end_.push_back(rank.memory->now());
      rank.stage->end_step();
    });
    double sum = 0;
    if (mode != Mode::generate) {
      for (std::int32_t m = 0; m < options_.microbatches; ++m) sum += ranks_.back()[0].stage->loss_sum(m);
    }
    return sum / tokens;
  }

  // The whole gradient of a parameter by name: shares put together, terms summed, stages with the same name summed.
  // Tensors that ranks have whole must be the same on all.
  std::vector<float> gradient(const std::string& name) {
    std::vector<float> whole;
    for (std::size_t s = 0; s < ranks_.size(); ++s) {
      const auto& parameters = ranks_[s][0].store->parameters();
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        if (parameters[p].name == name) add_gradient(s, p, whole);
      }
    }
    LOCKSTEP_CHECK(!whole.empty(), "a parameter of the model: " + name);
    return whole;
  }

  // A parameter as kernels read it, in f32.
  std::vector<float> weight(const std::string& name) {
    std::vector<float> whole;
    for (std::size_t t = 0; t < ranks_[0].size(); ++t) {
      for (auto& stage : ranks_) {
        const auto& parameters = stage[t].store->parameters();
        for (std::size_t p = 0; p < parameters.size(); ++p) {
          if (parameters[p].name != name) continue;
          const kernels::In share = stage[t].store->weight(p);
          place(parameters[p], t, whole, [&](std::int64_t i, float& to) { to = element(share.data, share.dtype, i); });
        }
      }
    }
    return whole;
  }

  // Puts change(index, value) in place of each element of a parameter, on all ranks.
  template <class Change>
  void change_weight(const std::string& name, const Change& change) {
    for (std::size_t t = 0; t < ranks_[0].size(); ++t) {
      for (auto& stage : ranks_) {
        const auto& parameters = stage[t].store->parameters();
        for (std::size_t p = 0; p < parameters.size(); ++p) {
          if (parameters[p].name != name) continue;
          const kernels::In share = stage[t].store->weight(p);
          auto* const data = const_cast<void*>(share.data);
          workload::for_each_run(parameters[p], {options_.shape.tensor.ranks, static_cast<std::int32_t>(t)},
                                 [&](std::int64_t begin, std::int64_t whole, std::int64_t count) {
                                   for (std::int64_t i = 0; i < count; ++i) {
                                     const float value = element(share.data, share.dtype, begin + i);
                                     set_element(data, share.dtype, begin + i, change(whole + i, value));
                                   }
                                 });
        }
      }
    }
  }

  std::vector<workload::Parameter> parameters() const {
    return parameters_of(options_.shape.model, {}, slice_of(options_.shape.model, {}, 1, 0));
  }
  const std::vector<std::vector<float>>& logits() const { return logits_; }  // by tensor rank
  // Activations that the first rank held between all forwards and all backwards.
  std::int64_t bytes_after_forward() const { return bytes_after_forward_; }
  // The bytes that ranks held when the last piece of a step had run.
  const std::vector<parallel::BytesByKind>& bytes_before_end() const { return bytes_before_end_; }
  static std::int64_t activation_bytes(const ModelRank& rank) {
    return rank.memory->now()[static_cast<std::size_t>(parallel::MemoryKind::activations)];
  }
  ModelRank& rank(std::size_t stage, std::size_t tensor) { return ranks_[stage][tensor]; }

 private:
  template <class Work>
  void each_rank(Work&& work) {
    for (auto& stage : ranks_) {
      for (ModelRank& rank : stage) work(rank);
    }
  }

  ModelRank make_rank(std::int32_t stage, std::int32_t tensor) {
    GptShape shape = options_.shape;
    shape.tensor.index = tensor;
    const workload::StageSlice& place = places_[static_cast<std::size_t>(stage)];
    std::vector<workload::Parameter> parameters = parameters_of(shape.model, {}, place);
    if (options_.lively) parameters = lively(std::move(parameters));
    std::vector<std::vector<std::size_t>> buckets(parameters.size());
    for (std::size_t p = 0; p < parameters.size(); ++p) buckets[p] = {p};
    ModelRank rank;
    rank.memory = std::make_unique<parallel::Memory>(*rank.device);
    rank.store = std::make_unique<parallel::ParameterStore>(
        *rank.memory, where_, std::move(parameters), shape.tensor, std::move(buckets),
        parallel::StoreOptions{.compute = shape.layout.compute, .gradient = options_.gradient});
    rank.store->initialize(options_.seed);
    rank.stage = std::make_unique<GptStage>(shape, place, *rank.store, *rank.memory, where_);
    return rank;
  }

  void forward(std::int32_t microbatch, Mode mode) {
    const Text text = random_text(options_.shape, microbatch);
    for (std::size_t s = 0; s < ranks_.size(); ++s) {
      for (ModelRank& rank : ranks_[s]) {
        rank.stage->give(microbatch, text.tokens, mode == Mode::generate ? std::vector<std::int32_t>{} : text.targets);
        rank.stage->load(microbatch);
      }
      if (s > 0) send_activations(s - 1, microbatch);
      run_list(s, microbatch, recipes_[s].forward);
    }
  }

  void backward_of_all() {
    for (std::int32_t m = 0; m < options_.microbatches; ++m) {
      for (std::size_t s = ranks_.size(); s-- > 0;) {
        if (s + 1 < ranks_.size()) send_gradient(s + 1, m);
        run_list(s, m, options_.split ? recipes_[s].input_gradient : recipes_[s].backward);
      }
    }
    for (std::int32_t m = 0; options_.split && m < options_.microbatches; ++m) {
      for (std::size_t s = ranks_.size(); s-- > 0;) run_list(s, m, recipes_[s].weight_gradient);
    }
  }

  static void copy(const kernels::In& from, const kernels::Out& to) {
    LOCKSTEP_CHECK(from.given() && from.elems == to.elems && from.dtype == to.dtype, "a whole message");
    std::memcpy(to.data, from.data, kernels::size_bytes(from.dtype, from.elems));
  }
  void send_activations(std::size_t from, std::int32_t microbatch) {
    for (std::size_t t = 0; t < ranks_[from].size(); ++t) {
      copy(ranks_[from][t].stage->activations_out(microbatch), ranks_[from + 1][t].stage->activations_in(microbatch));
      ranks_[from][t].stage->activations_sent(microbatch);
    }
  }
  void send_gradient(std::size_t from, std::int32_t microbatch) {
    for (std::size_t t = 0; t < ranks_[from].size(); ++t) {
      copy(ranks_[from][t].stage->gradient_out(microbatch), ranks_[from - 1][t].stage->gradient_in(microbatch));
      ranks_[from][t].stage->gradient_sent(microbatch);
    }
  }

  struct Begun {
    schedules::Task task;
    std::vector<GptStage::Exchange> sides;
  };
  void finish(std::size_t stage, std::vector<Begun>& begun) {
    for (Begun& one : begun) {
      do_collective(one.task.comm, one.sides);
      for (ModelRank& rank : ranks_[stage]) rank.stage->exchanged(one.task);
    }
    begun.clear();
  }

  // Waits as schedules::split_stages puts them.
  void run_list(std::size_t stage, std::int32_t microbatch, const std::vector<schedules::Piece>& pieces) {
    std::vector<Begun> next_waits_for;
    std::vector<Begun> after_next;
    for (const schedules::Piece& piece : pieces) {
      const schedules::Task task{.op = piece.op,
                                 .comm = piece.comm,
                                 .what = piece.what,
                                 .microbatch = microbatch,
                                 .part = piece.part,
                                 .amount = piece.amount};
      if (piece.comm == schedules::Comm::none) {
        finish(stage, next_waits_for);
        for (ModelRank& rank : ranks_[stage]) rank.stage->run(task);
        next_waits_for = std::move(after_next);
        after_next.clear();
        if (!options_.patient) finish(stage, next_waits_for);
        continue;
      }
      Begun begun{.task = task, .sides = {}};
      for (ModelRank& rank : ranks_[stage]) begun.sides.push_back(rank.stage->exchange(task));
      std::vector<Begun>& to = piece.overlaps_next ? after_next : next_waits_for;
      to.push_back(std::move(begun));
      if (!options_.patient) finish(stage, to);
    }
    finish(stage, next_waits_for);
    finish(stage, after_next);
  }

  template <class Put>
  void place(const workload::Parameter& parameter, std::size_t tensor, std::vector<float>& whole,
             const Put& put) const {
    whole.resize(static_cast<std::size_t>(parameter.elems()));
    workload::for_each_run(parameter, {options_.shape.tensor.ranks, static_cast<std::int32_t>(tensor)},
                           [&](std::int64_t share, std::int64_t begin, std::int64_t count) {
                             for (std::int64_t i = 0; i < count; ++i) {
                               put(share + i, whole[static_cast<std::size_t>(begin + i)]);
                             }
                           });
  }

  void add_gradient(std::size_t stage, std::size_t p, std::vector<float>& whole) {
    const workload::Parameter& parameter = ranks_[stage][0].store->parameters()[p];
    const bool partial = is_partial_over(schedules::GroupKind::tensor, parameter, options_.shape.layout);
    const bool same = parameter.split == workload::Split::none && !partial;
    const kernels::InOut of_first = ranks_[stage][0].store->gradients(0).of(p);
    for (std::size_t t = 0; t < ranks_[stage].size(); ++t) {
      const kernels::InOut share = ranks_[stage][t].store->gradients(0).of(p);
      if (same && t > 0) {
        LOCKSTEP_CHECK(
            std::memcmp(share.data, of_first.data, static_cast<std::size_t>(share.elems) * sizeof(float)) == 0,
            parameter.name + ": the same gradient on all tensor ranks");
        continue;
      }
      place(parameter, t, whole, [&](std::int64_t i, float& to) { to += share.as<float>()[i]; });
    }
  }

  ModelOptions options_;
  kernels::Context where_;
  std::vector<workload::StageSlice> places_;
  std::vector<schedules::StageRecipe> recipes_;
  std::vector<std::vector<ModelRank>> ranks_;  // by stage and tensor rank
  std::vector<std::vector<float>> logits_;
  std::vector<parallel::BytesByKind> bytes_before_end_;
  std::int64_t bytes_after_forward_ = 0;
};

}  // namespace lockstep::trainer::tests
