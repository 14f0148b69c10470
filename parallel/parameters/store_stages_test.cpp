// All stages of ZeRO do what stage 0 does on one rank: three steps of AdamW, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "testing/trainer/stores.h"

namespace lockstep::parallel {
namespace {

using core::DType;
using workload::Offload;
using workload::OffloadKind;
using workload::OffloadPlaces;
using State = ParameterStore::State;

void expect_same(Ranks& ranks, Ranks& expected) {
  for (const State state : {State::master, State::first_moment, State::second_moment}) {
    EXPECT_EQ(ranks.whole(state), expected.whole(state)) << "state " << static_cast<int>(state);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    for (std::size_t p = 0; p < ranks.store(r).parameters().size(); ++p) {
      EXPECT_EQ(floats_of(ranks.store(r).weight(p)), floats_of(expected.store(0).weight(p)));
    }
  }
}

// One rank that makes all ranks' gradients.
void train_alone(Ranks& single, std::size_t num_ranks, int microbatches, Gradients (*gradients_of)(int step)) {
  single.each([](ParameterStore& store) { store.initialize(17); });
  for (int step = 1; step <= kSteps; ++step) {
    single.store(0).zero_gradients();
    const Gradients gradients = gradients_of(step);
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      for (std::size_t r = 0; r < num_ranks; ++r) {
        backward(single, microbatch,
                 [&](std::size_t, int m, std::size_t p, std::int64_t i) { return gradients(r, m, p, i); });
      }
    }
    single.store(0).update(kAdamW, step, kFactor);
  }
}

// Replicas of a set of shards (FSDP's hybrid sharding).
void train_hybrid(std::vector<std::unique_ptr<Ranks>>& replicas, int microbatches) {
  const std::size_t shards = replicas.front()->size();
  const bool each_time = replicas.front()->options().zero >= 2;
  for (const auto& set : replicas) set->each([](ParameterStore& store) { store.initialize(17); });
  for (int step = 1; step <= kSteps; ++step) {
    const Gradients gradients = small_integers(step);
    for (const auto& set : replicas) {
      set->each([](ParameterStore& store) { store.zero_gradients(); });
      set->gather_all();
    }
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      for (std::size_t set = 0; set < replicas.size(); ++set) {
        backward(*replicas[set], microbatch, [&](std::size_t r, int m, std::size_t p, std::int64_t i) {
          return gradients(set * shards + r, m, p, i);
        });
      }
      if (!each_time && microbatch + 1 < microbatches) continue;
      replicas.front()->each_bucket([&](std::int32_t b) { reduce_over(replicas, b); });
    }
    for (const auto& set : replicas) {
      set->reshard_all();
      set->each([step](ParameterStore& store) { store.update(kAdamW, step, kFactor); });
    }
  }
  for (const auto& set : replicas) set->gather_all();
}

TEST(StoreStages, ReplicasOfShardsGiveTheBitsOfOneRank) {
  for (const StoreOptions& dtypes : kDtypes) {
    for (const int microbatches : {1, 2}) {
      Ranks single(dtypes, 1);
      train_alone(single, 4, microbatches, small_integers);
      for (std::int32_t zero = 1; zero <= 3; ++zero) {
        const StoreOptions options = at_stage(dtypes, zero);
        std::vector<std::unique_ptr<Ranks>> replicas;
        for (int set = 0; set < 2; ++set) replicas.push_back(std::make_unique<Ranks>(options, 2));
        train_hybrid(replicas, microbatches);
        SCOPED_TRACE(text_of(options, 2) + " in 2 replicas");
        for (const auto& set : replicas) expect_same(*set, single);
      }
    }
  }
}

// A sum over far replicas may take long: whole gradients do not lie there meanwhile.
TEST(StoreStages, TheWholeIsGivenUpBeforeReplicasAreSummed) {
  const auto gradients_at = [](Rank& rank) {
    return rank.memory.now()[static_cast<std::size_t>(MemoryKind::gradients)];
  };
  Ranks ranks({.zero = 3}, 2);
  ranks.each([](ParameterStore& store) { store.initialize(17); });
  ranks.gather_all();
  const std::int64_t shards = gradients_at(ranks.at(0));
  backward(ranks, 0, small_integers(1));
  const std::int64_t whole = gradients_at(ranks.at(0)) - shards;
  EXPECT_EQ(whole, 2 * shards);
  std::vector<std::vector<ParameterStore::Reduction>> reductions;
  ranks.each_bucket([&](std::int32_t b) { reductions.push_back(ranks.sum_over_shards(b)); });
  EXPECT_EQ(gradients_at(ranks.at(0)), shards + whole);
  std::vector<ParameterStore::Landed> landed;
  for (auto& bucket : reductions) landed.push_back(std::move(bucket.front()).landed());
  EXPECT_EQ(gradients_at(ranks.at(0)), shards);
  for (ParameterStore::Landed& gradient : landed) std::move(gradient).add(ranks.lane());
  EXPECT_NO_THROW(ranks.store(0).own_gradient(0));
}

TEST(StoreStages, ExactSumsGiveTheBitsOfOneRank) {
  for (const StoreOptions& dtypes : kDtypes) {
    for (std::int32_t shards = 1; shards <= 4; ++shards) {
      for (const int microbatches : {1, 2}) {
        Ranks single(dtypes, 1);
        train_alone(single, static_cast<std::size_t>(shards), microbatches, small_integers);
        for (std::int32_t zero = 0; zero <= 3; ++zero) {
          for (const When when : {When::each_microbatch, When::late, When::once}) {
            if (zero < 2 && when != When::once) continue;
            StoreOptions options = at_stage(dtypes, zero);
            options.reduce_every_microbatch = when != When::once;
            Ranks ranks(options, shards);
            SCOPED_TRACE(text_of(ranks.options(), shards) + ", when " + std::to_string(static_cast<int>(when)));
            train(ranks, microbatches, when, small_integers);
            expect_same(ranks, single);
          }
        }
      }
    }
  }
}

// With sums made in the same order, of numbers that do get rounded: all stages are stage 0.
TEST(StoreStages, AllStagesRoundAlike) {
  for (const StoreOptions& dtypes : kDtypes) {
    for (std::int32_t shards = 2; shards <= 4; ++shards) {
      Ranks stage0(dtypes, shards);
      train(stage0, 1, When::once, fractions);
      for (std::int32_t zero = 1; zero <= 3; ++zero) {
        Ranks ranks(at_stage(dtypes, zero), shards);
        SCOPED_TRACE(text_of(ranks.options(), shards));
        train(ranks, 1, When::each_microbatch, fractions);
        expect_same(ranks, stage0);
      }
    }
  }
}

// Weights that kernels read are the master weights rounded, and training moved them.
TEST(StoreStages, NarrowWeightsFollowTheirMasters) {
  Ranks ranks({.compute = DType::bf16, .gradient = DType::f32, .zero = 2}, 3);
  train(ranks, 1, When::each_microbatch, fractions);
  const auto masters = ranks.whole(State::master);
  for (std::size_t p = 0; p < masters.size(); ++p) {
    const std::vector<float> weights = floats_of(ranks.store(1).weight(p));
    for (std::size_t i = 0; i < weights.size(); ++i) {
      EXPECT_EQ(weights[i], core::to_float(core::to_bfloat16(masters[p][i])));
    }
  }
  Ranks fresh({.compute = DType::bf16, .gradient = DType::f32, .zero = 2}, 3);
  fresh.each([](ParameterStore& store) { store.initialize(17); });
  EXPECT_NE(fresh.whole(State::master), masters);
}

// The optimizer against the definition, in f64: decay of matrices only, gradients times the factor.
class OneStep : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(StoreStages, OneStep, ::testing::Values(DType::f32, DType::bf16));

TEST_P(OneStep, IsAdamW) {
  Ranks ranks({.compute = GetParam(), .zero = 1}, 2);
  ranks.each([](ParameterStore& store) { store.initialize(5); });
  const auto before = ranks.whole(State::master);
  backward(ranks, 0, fractions(1));
  ranks.reduce_all();
  ranks.each([](ParameterStore& store) { store.update(kAdamW, 1, kFactor); });
  const auto after = ranks.whole(State::master);
  const auto first_moment = ranks.whole(State::first_moment);
  const auto second_moment = ranks.whole(State::second_moment);
  const Gradients gradients = fractions(1);
  for (std::size_t p = 0; p < before.size(); ++p) {
    const double decay = small_model()[p].decays ? static_cast<double>(kAdamW.decay) : 0.0;
    for (std::size_t i = 0; i < before[p].size(); ++i) {
      const auto element = static_cast<std::int64_t>(i);
      const double g =
          (static_cast<double>(gradients(0, 0, p, element)) + static_cast<double>(gradients(1, 0, p, element))) *
          static_cast<double>(kFactor);
      const double w = static_cast<double>(before[p][i]);
      EXPECT_NEAR(static_cast<double>(first_moment[p][i]), (1 - static_cast<double>(kAdamW.beta1)) * g, 1e-7);
      EXPECT_NEAR(static_cast<double>(second_moment[p][i]), (1 - static_cast<double>(kAdamW.beta2)) * g * g, 1e-8);
      // After one step the corrected moments are g and g^2.
      const double direction = g / (std::abs(g) + static_cast<double>(kAdamW.epsilon));
      const double expected = w - static_cast<double>(kAdamW.rate) * (direction + decay * w);
      EXPECT_NEAR(static_cast<double>(after[p][i]), expected, 1e-6 * (1 + std::abs(w)));
    }
  }
}

// State that went through runs() into stores of another layout goes on alike; also where memory is a device's.
TEST(StoreStages, StateGoesIntoAnotherLayout) {
  const StoreOptions bf16{.compute = DType::bf16, .gradient = DType::f32};
  Ranks ranks(at_stage(bf16, 3), 3);
  train(ranks, 1, When::each_microbatch, small_integers);
  for (std::int32_t zero = 0; zero <= 3; ++zero) {
    for (const RanksSetup& setup :
         {RanksSetup{}, RanksSetup{.distant = true}, RanksSetup{.offload = {.optimizer = Offload::host}},
          RanksSetup{.offload = {.optimizer = Offload::file}}}) {
      Ranks others(at_stage(bf16, zero), 2, setup);
      for (const State state : {State::master, State::first_moment, State::second_moment}) {
        const auto whole = ranks.whole(state);
        others.each([&](ParameterStore& store) {
          for (const ParameterStore::Run& run : store.runs(state)) {
            const auto begin = whole[run.parameter].begin() + static_cast<std::ptrdiff_t>(run.whole_begin);
            std::copy(begin, begin + static_cast<std::ptrdiff_t>(run.count), run.data);
          }
          store.store_back(state);
        });
      }
      others.each([](ParameterStore& store) { store.masters_changed(); });
      others.gather_all();
      expect_same(others, ranks);
    }
  }
}

void expect_same_bits_offloaded(const StoreOptions& options, const OffloadPlaces& places,
                                const RanksSetup& setup = {}) {
  SCOPED_TRACE(text_of(options, 2) + ", offload " + text_of(places));
  RanksSetup there = setup;
  there.offload = places;
  Ranks here(options, 2, setup);
  Ranks away(options, 2, there);
  train(here, 2, When::each_microbatch, fractions);
  train(away, 2, When::each_microbatch, fractions);
  away.reshard_all();
  const auto held = away.at(0).memory.now();
  const auto expect_moved = [&](OffloadKind kind, Offload place, MemoryKind memory) {
    EXPECT_EQ(here.store(0).offloaded_bytes(kind), 0);
    EXPECT_EQ(away.store(0).offloaded_bytes(kind) > 0, place != Offload::none) << name_of(memory);
    EXPECT_EQ(held[static_cast<std::size_t>(memory)] == 0, place != Offload::none) << name_of(memory);
  };
  expect_moved(OffloadKind::optimizer, places.optimizer, MemoryKind::optimizer);
  expect_moved(OffloadKind::gradients, places.gradients, MemoryKind::gradients);
  expect_moved(OffloadKind::parameters, places.parameters, MemoryKind::weights);
  away.gather_all();
  expect_same(away, here);
}

// In pieces that end within parameters and within what a kernel takes at once.
TEST(StoreStages, OffloadedStatesAreTheSameBits) {
  for (const Offload place : {Offload::host, Offload::file}) {
    for (const StoreOptions& dtypes : kDtypes) {
      for (const std::int32_t zero : {0, 1, 2, 3}) {
        expect_same_bits_offloaded(at_stage(dtypes, zero), {.optimizer = place});
      }
    }
  }
}

TEST(StoreStages, OffloadedGradientsAndWeightsAreTheSameBits) {
  for (const StoreOptions& dtypes : kDtypes) {
    const StoreOptions options = at_stage(dtypes, 3);
    for (const Offload optimizer : {Offload::none, Offload::host}) {
      for (const Offload gradients : {Offload::none, Offload::host}) {
        for (const Offload parameters : {Offload::none, Offload::host}) {
          expect_same_bits_offloaded(options, {optimizer, gradients, parameters});
        }
      }
    }
    expect_same_bits_offloaded(options, {Offload::file, Offload::file, Offload::file});
    expect_same_bits_offloaded(options, {Offload::none, Offload::file, Offload::host});
    expect_same_bits_offloaded(at_stage(dtypes, 2), {.optimizer = Offload::file, .gradients = Offload::host});
  }
}

// Shards of several pieces, which are whole blocks where they are also copied at once.
TEST(StoreStages, OffloadedShardsOfSeveralPiecesAreTheSameBits) {
  const RanksSetup setup{.parameters = {{.name = "w", .shape = {70, 130}, .part = 0, .deviation = 1, .decays = true},
                                        {.name = "b", .shape = {5000}, .part = 1, .fill = 0.25F}},
                         .buckets = {{1}, {0}}};
  for (const StoreOptions& dtypes : kDtypes) {
    expect_same_bits_offloaded(at_stage(dtypes, 3), {Offload::host, Offload::file, Offload::file}, setup);
  }
}

// Gradients that do not depend on weights: each update a step later leads to the same.
void train_delayed(Ranks& ranks, int microbatches) {
  ranks.each([](ParameterStore& store) { store.initialize(17); });
  for (int step = 1; step <= kSteps; ++step) {
    ranks.each([](ParameterStore& store) { store.zero_gradients(); });
    ranks.gather_all();
    std::vector<std::jthread> updates;  // from the beginning on
    for (std::size_t r = 0; r < ranks.size() && step > 1; ++r) {
      updates.emplace_back([&ranks, r, step] { ranks.store(r).delayed_update(kAdamW, step - 1, kFactor); });
    }
    for (int microbatch = 0; microbatch < microbatches; ++microbatch) {
      backward(ranks, microbatch, fractions(step));
      ranks.reduce_all();
    }
    updates.clear();
    ranks.reshard_all();
    ranks.each([step](ParameterStore& store) {
      if (step > 1) store.take_update();
      if (step == 1) store.give_up_gathered();
      store.keep_gradients();
    });
  }
  ranks.each([](ParameterStore& store) {
    store.delayed_update(kAdamW, kSteps, kFactor);
    store.take_update();
  });
  ranks.gather_all();
}

TEST(StoreStages, DelayedUpdatesOfTheSameGradientsAreTheSameBits) {
  for (const std::int32_t zero : {2, 3}) {
    for (const StoreOptions& dtypes : kDtypes) {
      if (dtypes.compute == DType::f32) continue;
      const StoreOptions options = at_stage(dtypes, zero);
      Ranks here(options, 2);
      train(here, 2, When::each_microbatch, fractions);
      for (const Offload place : {Offload::host, Offload::file}) {
        for (const Offload parameters : {Offload::none, place}) {
          if (zero == 2 && parameters != Offload::none) continue;
          SCOPED_TRACE(text_of(options, 2) + ", " + std::string(name_of(place)) + ", weights " +
                       std::string(name_of(parameters)));
          Ranks away(options, 2, {.offload = {place, place, parameters}, .delays = true});
          train_delayed(away, 2);
          expect_same(away, here);
        }
      }
    }
  }
}

TEST(StoreStages, StatesOfADeviceAreOffloaded) {
  for (const StoreOptions& dtypes : kDtypes) {
    for (const std::int32_t zero : {0, 3}) {
      expect_same_bits_offloaded(at_stage(dtypes, zero), {.optimizer = Offload::host}, {.distant = true});
    }
  }
}

TEST(StoreStages, MemoryOfADeviceIsCopied) {
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    const StoreOptions options{.compute = DType::bf16, .gradient = DType::bf16, .zero = zero};
    Ranks near(options, 2);
    Ranks distant(options, 2, {.distant = true});
    train(near, 2, When::each_microbatch, fractions);
    train(distant, 2, When::each_microbatch, fractions);
    expect_same(distant, near);
  }
}

// All of `whole` but the parts.
std::vector<float> between(const kernels::In& whole, const std::vector<kernels::In>& parts) {
  std::vector<float> values = floats_of(whole);
  std::vector<bool> padding(values.size(), true);
  const auto size = static_cast<std::ptrdiff_t>(core::size_of(whole.dtype));
  for (const kernels::In& part : parts) {
    if (part.elems == 0) continue;
    const std::ptrdiff_t begin = (part.as<std::byte>() - whole.as<std::byte>()) / size;
    for (std::int64_t i = 0; i < part.elems; ++i) padding.at(static_cast<std::size_t>(begin + i)) = false;
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (padding[i]) values[kept++] = values[i];
  }
  values.resize(kept);
  return values;
}

// So that sums and messages of whole buckets add nothing but zeros.
TEST(StoreStages, PaddingStaysZero) {
  for (const std::int32_t zero : {1, 2}) {
    Ranks ranks({.compute = DType::bf16, .gradient = DType::bf16, .zero = zero}, 4);
    train(ranks, 2, zero == 1 ? When::once : When::each_microbatch, fractions);
    std::size_t padded = 0;
    const std::vector<std::vector<std::size_t>> buckets = small_buckets();
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      ParameterStore& store = ranks.store(b);  // one rank is as good as another
      const auto bucket = static_cast<std::int32_t>(b);
      std::vector<kernels::In> weights;
      std::vector<kernels::In> gradients;
      for (const std::size_t p : buckets[b]) {
        weights.push_back(store.weight(p));
        gradients.push_back(store.own_gradient_of(p).in());
      }
      const std::vector<float> zeros = between(read(store.gather(bucket).whole()), weights);
      EXPECT_EQ(zeros, std::vector<float>(zeros.size()));
      padded += zeros.size();
      const std::vector<float> own = between(store.own_gradient(bucket).in(), gradients);
      EXPECT_EQ(own, std::vector<float>(own.size()));
    }
    EXPECT_GT(padded, 0U);
  }
}

// The rank's own thread goes on to the next microbatch while another reduces the one before.
TEST(StoreStages, ALateReductionInAnotherThread) {
  Ranks single({}, 1);
  train_alone(single, 2, 4, small_integers);
  Ranks ranks({.zero = 2}, 2);
  ranks.each([](ParameterStore& store) { store.initialize(17); });
  for (int step = 1; step <= kSteps; ++step) {
    ranks.each([](ParameterStore& store) { store.zero_gradients(); });
    ranks.gather_all();
    std::thread lane;
    for (int microbatch = 0; microbatch < 4; ++microbatch) {
      backward(ranks, microbatch, small_integers(step));
      if (lane.joinable()) lane.join();
      lane = std::thread([&] { ranks.reduce_all(); });
    }
    lane.join();
    ranks.each([step](ParameterStore& store) { store.update(kAdamW, step, kFactor); });
  }
  ranks.gather_all();
  expect_same(ranks, single);
}

// Results do not depend on the threads of kernels.
TEST(StoreStages, ThreadsChangeNoBits) {
  Ranks single({.compute = DType::bf16, .gradient = DType::bf16}, 1);
  Ranks three({.compute = DType::bf16, .gradient = DType::bf16}, 1, {.num_threads = 3});
  train(single, 2, When::once, fractions);
  train(three, 2, When::once, fractions);
  expect_same(three, single);
}

}  // namespace
}  // namespace lockstep::parallel
