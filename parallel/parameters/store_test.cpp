#include "parallel/parameters/store.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/error.h"
#include "parallel/parameters/zero_bytes.h"
#include "testing/trainer/stores.h"

namespace lockstep::parallel {
namespace {

std::vector<float> values_of(const workload::Parameter& parameter, std::uint64_t seed, std::int64_t begin,
                             std::size_t count) {
  std::vector<float> values(count, -7);
  fill_initial_values(parameter, seed, begin, values);
  return values;
}

TEST(InitialValues, PartsAreThoseOfTheWhole) {
  const workload::Parameter matrix{.name = "h.0.mlp.c_fc.weight", .shape = {10, 10}, .deviation = 0.02F};
  const std::vector<float> whole = values_of(matrix, 1, 0, 100);
  for (std::int64_t begin = 0; begin < 10; ++begin) {
    for (std::size_t count = 1; count < 6; ++count) {
      const std::vector<float> part = values_of(matrix, 1, begin, count);
      for (std::size_t i = 0; i < count; ++i) EXPECT_EQ(part[i], whole[static_cast<std::size_t>(begin) + i]);
    }
  }
}

TEST(InitialValues, AreOfSeedAndName) {
  const workload::Parameter a{.name = "a", .shape = {8}, .deviation = 1};
  const workload::Parameter b{.name = "b", .shape = {8}, .deviation = 1};
  EXPECT_EQ(values_of(a, 1, 0, 8), values_of(a, 1, 0, 8));
  EXPECT_NE(values_of(a, 1, 0, 8), values_of(a, 2, 0, 8));
  EXPECT_NE(values_of(a, 1, 0, 8), values_of(b, 1, 0, 8));
}

TEST(InitialValues, WithoutADeviationAreAllTheSame) {
  const workload::Parameter ones{.name = "ln.weight", .shape = {4}, .fill = 1};
  EXPECT_EQ(values_of(ones, 1, 0, 4), std::vector<float>(4, 1.0F));
}

// Moments and tails of 2^20 normal numbers, within five of their standard errors.
TEST(InitialValues, AreNormal) {
  const std::size_t count = std::size_t{1} << 20;
  const workload::Parameter many{.name = "many", .shape = {1 << 20}, .deviation = 3};
  const std::vector<float> values = values_of(many, 5, 0, count);
  const auto n = static_cast<double>(count);
  double sum = 0;
  double squares = 0;
  double fourth = 0;
  double neighbours = 0;
  double beyond_two = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double x = static_cast<double>(values[i]) / 3;
    sum += x;
    squares += x * x;
    fourth += x * x * x * x;
    neighbours += x * static_cast<double>(values[i ^ 1]) / 3;
    beyond_two += std::abs(x) > 2 ? 1 : 0;
  }
  EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
  EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(fourth / n, 3, 5 * std::sqrt(96 / n));
  EXPECT_NEAR(neighbours / n, 0, 5 * std::sqrt(2 / n));
  const double tail = std::erfc(std::sqrt(2.0));
  EXPECT_NEAR(beyond_two / n, tail, 5 * std::sqrt(tail / n));
}

using core::DType;
using State = ParameterStore::State;

std::vector<std::vector<float>> initial_values(const std::vector<workload::Parameter>& parameters, std::uint64_t seed) {
  std::vector<std::vector<float>> all;
  for (const workload::Parameter& parameter : parameters) {
    all.emplace_back(static_cast<std::size_t>(parameter.elems()));
    fill_initial_values(parameter, seed, 0, all.back());
  }
  return all;
}

// Calls visit(options, shards) for each stage, dtype and number of ranks.
template <class Visit>
void for_each_layout(Visit&& visit) {
  for (const StoreOptions& dtypes : kDtypes) {
    for (std::int32_t zero = 0; zero <= 3; ++zero) {
      for (std::int32_t shards = 1; shards <= 4; ++shards) {
        const StoreOptions options = at_stage(dtypes, zero);
        SCOPED_TRACE(text_of(options, shards));
        visit(options, shards);
      }
    }
  }
}

TEST(Store, InitialValuesAreTheSameInEveryLayout) {
  const auto expected = initial_values(small_model(), 3);
  for_each_layout([&](const StoreOptions& options, std::int32_t shards) {
    Ranks ranks(options, shards);
    ranks.each([](ParameterStore& store) { store.initialize(3); });
    EXPECT_EQ(ranks.whole(State::master), expected);
    if (options.zero == 3) ranks.gather_all();  // the others have whole weights from the start
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      for (std::size_t p = 0; p < expected.size(); ++p) {
        std::vector<float> rounded = expected[p];
        if (options.compute == DType::bf16) {
          for (float& value : rounded) value = core::to_float(core::to_bfloat16(value));
        } else if (options.compute == DType::f16) {
          for (float& value : rounded) value = core::to_float(core::to_float16(value));
        }
        EXPECT_EQ(floats_of(ranks.store(r).weight(p)), rounded);
      }
    }
  });
}

// Tensor ranks and shards together have each element of a parameter that is split once, of others once a tensor rank.
TEST(Store, RunsCoverEachElementOverAllPlaces) {
  const std::vector<workload::Parameter> parameters = small_model();
  const auto expected = initial_values(parameters, 9);
  for (const std::int32_t tensor_ranks : {1, 2, 4}) {
    for (const std::int32_t shards : {1, 2, 3}) {
      std::vector<std::vector<int>> seen;
      for (const workload::Parameter& parameter : parameters)
        seen.emplace_back(static_cast<std::size_t>(parameter.elems()));
      for (std::int32_t index = 0; index < tensor_ranks; ++index) {
        Ranks ranks({.zero = 1}, shards, {.place = {tensor_ranks, index}});
        ranks.each([&](ParameterStore& store) {
          store.initialize(9);
          for (const ParameterStore::Run& run : store.runs(State::master)) {
            for (std::int64_t i = 0; i < run.count; ++i) {
              const auto element = static_cast<std::size_t>(run.whole_begin + i);
              ++seen.at(run.parameter).at(element);
              EXPECT_EQ(run.data[i], expected[run.parameter][element]);
            }
          }
        });
      }
      for (std::size_t p = 0; p < parameters.size(); ++p) {
        const int times = parameters[p].split == workload::Split::none ? tensor_ranks : 1;
        EXPECT_EQ(seen[p], std::vector<int>(seen[p].size(), times)) << parameters[p].name << " tp " << tensor_ranks;
      }
    }
  }
}

TEST(Store, WeightsHaveTheShapeOfTheShare) {
  const std::vector<workload::Parameter> parameters = small_model();
  Ranks ranks({}, 1, {.place = {4, 3}});
  for (std::size_t p = 0; p < parameters.size(); ++p) {
    EXPECT_EQ(ranks.store(0).weight(p).elems, workload::elems_of_share(parameters[p], {4}));
  }
  EXPECT_EQ(ranks.store(0).bucket_of(0), 2);
  EXPECT_EQ(ranks.store(0).num_buckets(), 3);
}

std::int64_t padded(ParameterStore& store) {
  std::int64_t elems = 0;
  for (std::int32_t b = 0; b < store.num_buckets(); ++b) elems += store.padded_elems(b);
  return elems;
}
ZeroCase case_of(const Ranks& ranks, std::int64_t elems) {
  const StoreOptions& options = ranks.options();
  return {.elems = elems,
          .ranks = options.shards,
          .stage = options.zero,
          .compute = options.compute,
          .gradient = options.gradient};
}
float no_gradient(std::size_t /*rank*/, int /*microbatch*/, std::size_t /*parameter*/, std::int64_t /*element*/) {
  return 0;
}

// Held from step to step, before a step and after it.
TEST(Store, MemoryIsThatOfTheFormulas) {
  for_each_layout([](const StoreOptions& options, std::int32_t shards) {
    Ranks ranks(options, shards);
    const std::int64_t elems = padded(ranks.store(0));
    EXPECT_EQ(elems % shards, 0);
    EXPECT_EQ(elems / shards % 32, 0);
    const BytesByKind expected = zero_bytes(case_of(ranks, elems));
    for (std::size_t r = 0; r < ranks.size(); ++r) EXPECT_EQ(ranks.at(r).memory.now(), expected);

    ranks.gather_all();
    for (int microbatch = 0; microbatch < 2; ++microbatch) {
      backward(ranks, microbatch, no_gradient);
      if (microbatch == 1 || options.zero >= 2) ranks.reduce_all();
    }
    ranks.reshard_all();
    ranks.each([](ParameterStore& store) { store.update({}, 1, 1); });
    for (std::size_t r = 0; r < ranks.size(); ++r) EXPECT_EQ(ranks.at(r).memory.now(), expected);
  });
}

// 16 psi for mixed precision, from allocations: parameters that need no padding.
TEST(Store, SixteenBytesAParameter) {
  const std::vector<workload::Parameter> even = {{.name = "a", .shape = {128, 8}, .decays = true},
                                                 {.name = "b", .shape = {256}},
                                                 {.name = "c", .shape = {128}},
                                                 {.name = "d", .shape = {128}},
                                                 {.name = "e", .shape = {256}}};
  static constexpr std::int64_t kPsi = 1024 + 256 + 128 + 128 + 256;
  for (const std::int64_t n : {1, 2, 4}) {
    const std::int64_t expected[] = {16 * kPsi, 4 * kPsi + 12 * kPsi / n, 2 * kPsi + 14 * kPsi / n, 16 * kPsi / n};
    for (std::int32_t zero = 0; zero <= 3; ++zero) {
      Ranks ranks({.compute = DType::bf16, .gradient = DType::bf16, .zero = zero}, static_cast<std::int32_t>(n),
                  {.parameters = even});
      ranks.each([](ParameterStore& store) { EXPECT_EQ(padded(store), kPsi); });
      EXPECT_EQ(total_of(ranks.at(0).memory.now()), expected[zero]) << "stage " << zero << " of " << n;
    }
  }
}

// Whole weights and gradients of stage 3 come on top of what is held, and only while they are there.
TEST(Store, WholeBucketsShowInThePeakOnly) {
  Ranks ranks({.compute = DType::bf16, .gradient = DType::f32, .zero = 3}, 2);
  Memory& memory = ranks.at(0).memory;
  const BytesByKind held = memory.now();
  memory.restart_peaks();
  ranks.gather_all();
  backward(ranks, 0, no_gradient);
  ranks.reduce_all();
  backward(ranks, 1, no_gradient);
  ranks.reduce_all();
  ranks.reshard_all();
  EXPECT_EQ(memory.now(), held);
  std::int64_t largest = 0;
  for (std::int32_t b = 0; b < 3; ++b) largest = std::max(largest, ranks.store(0).padded_elems(b));
  // All buckets at once, as this step has it; a landing shard per bucket, in order.
  const std::int64_t elems = padded(ranks.store(0));
  const BytesByKind more{2 * elems, 4 * elems, 0, 0, 0};
  const BytesByKind peak = memory.peak_of_each();
  for (const MemoryKind kind : {MemoryKind::weights, MemoryKind::gradients, MemoryKind::optimizer}) {
    const auto k = static_cast<std::size_t>(kind);
    EXPECT_EQ(peak[k], held[k] + more[k]) << name_of(kind);
  }
  const auto buffers = static_cast<std::size_t>(MemoryKind::buffers);
  EXPECT_EQ(peak[buffers], held[buffers] + largest / 2 * 4);
}

TEST(Store, NormOfChosenParameters) {
  for_each_layout([](const StoreOptions& options, std::int32_t shards) {
    Ranks ranks(options, shards);
    ranks.gather_all();
    backward(ranks, 0, [](std::size_t rank, int, std::size_t parameter, std::int64_t) {
      return rank == 0 ? static_cast<float>(parameter + 1) : 0.0F;
    });
    ranks.reduce_all();
    double matrices = 0;
    const auto counts = [](std::size_t p) { return p == 0 || p == 3; };
    ranks.each([&](ParameterStore& store) {
      double sum = 0;
      kernels::ThreadPool pool(1);
      store.sum_of_squares(counts, {&sum, core::DType::f64, 1}, kernels::Context(pool));
      matrices += sum;
    });
    const double copies = options.zero == 0 ? shards : 1;
    EXPECT_EQ(matrices, copies * (66 * 1 + 48 * 16));
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      const kernels::InOut own = ranks.store(r).own_gradient_of(4);
      for (std::int64_t i = 0; i < own.elems; ++i) EXPECT_EQ(floats_of(own.in())[static_cast<std::size_t>(i)], 5.0F);
    }
  });
}

// ---- what a caller must not do

TEST(Store, WeightsThatAreNotGatheredAreABug) {
  Ranks sharded({.zero = 3}, 2);
  EXPECT_THROW(sharded.store(0).weight(0), core::Error);
  sharded.gather(2);
  EXPECT_NO_THROW(sharded.store(0).weight(0));
  EXPECT_THROW(sharded.store(0).weight(2), core::Error) << "another bucket";
  sharded.store(0).reshard(2);
  EXPECT_THROW(sharded.store(0).weight(0), core::Error);

  Ranks stale({.zero = 1}, 2);
  EXPECT_NO_THROW(stale.store(0).weight(0));
  backward(stale, 0, no_gradient);
  stale.reduce_all();
  stale.each([](ParameterStore& store) { store.update({}, 1, 1); });
  EXPECT_THROW(stale.store(0).weight(0), core::Error);
  stale.gather_all();
  EXPECT_NO_THROW(stale.store(0).weight(0));
}

TEST(Store, ReductionsHaveTheirOrder) {
  Ranks late({.zero = 2}, 2);
  ParameterStore& store = late.store(0);
  EXPECT_THROW(store.own_gradient(0), core::Error) << "nothing was reduced";
  EXPECT_THROW(store.update({}, 1, 1), core::Error);
  ParameterStore::PartGradients gradients = store.gradients(1);
  EXPECT_NO_THROW(gradients.of(3));
  EXPECT_THROW(store.reduce(0).whole(), core::Error) << "nothing was committed";
  std::move(gradients).commit();
  EXPECT_THROW(store.reduce(0).whole(), core::Error) << "part 2 of the bucket is not committed";
  store.gradients(2).commit();
  {
    ParameterStore::Reduction reduction = store.reduce(0);
    store.gradients(1).commit();
    store.gradients(2).commit();
    EXPECT_THROW(store.reduce(0).whole(), core::Error) << "twice at once";
    EXPECT_THROW(store.zero_gradients(), core::Error) << "meanwhile";
    ParameterStore::Landed landed = std::move(reduction).landed();
    EXPECT_THROW(store.reduce(0).whole(), core::Error) << "the sum over replicas may be under way";
    EXPECT_THROW(reduction.whole(), core::Error) << "used up";   // NOLINT(bugprone-use-after-move)
    EXPECT_THROW(reduction.result(), core::Error) << "used up";  // NOLINT(bugprone-use-after-move)
    std::move(landed).add(late.lane());
  }
  EXPECT_THROW(store.own_gradient(0), core::Error) << "the later microbatch waits for its reduction";
  store.reduce(0).landed().add(late.lane());
  EXPECT_NO_THROW(store.own_gradient(0));
  store.gradients(1).of(3);
  EXPECT_THROW(store.own_gradient(0), core::Error) << "a microbatch that is added to, and not committed";

  Ranks once({.zero = 1}, 2);
  once.reduce_all();
  EXPECT_THROW(once.store(0).gradients(0).of(0), core::Error) << "after the reduction";
  EXPECT_THROW(once.store(0).reduce(0).whole(), core::Error) << "twice a step";
  once.each([](ParameterStore& each) { each.zero_gradients(); });
  EXPECT_NO_THROW(once.store(0).gradients(0).of(0));
}

// The compiler refuses to end an operation that was not begun, to end it twice or keep it, and to copy a handle.
template <class Handle>
constexpr bool kIsHandedOn = !std::is_copy_constructible_v<Handle> && std::is_nothrow_move_constructible_v<Handle>;
template <class Gathering>
concept EndsWhereItLies = requires(Gathering& gathering) {
  gathering.done();
};
template <class Reduction>
concept LandsWhereItLies = requires(Reduction& reduction) {
  reduction.landed();
};
static_assert(kIsHandedOn<ParameterStore::Gathering> && kIsHandedOn<ParameterStore::PartGradients> &&
              kIsHandedOn<ParameterStore::Reduction> && kIsHandedOn<ParameterStore::Landed>);
static_assert(!std::is_default_constructible_v<ParameterStore::Gathering> &&
              !std::is_default_constructible_v<ParameterStore::Reduction>);
static_assert(!EndsWhereItLies<ParameterStore::Gathering> && !LandsWhereItLies<ParameterStore::Reduction>);

TEST(Store, AHandleThatWasUsedUpIsABug) {
  Ranks ranks({.zero = 3}, 2);
  ParameterStore& store = ranks.store(0);
  ParameterStore::Gathering gathering = store.gather(2);
  EXPECT_THROW(store.weight(0), core::Error) << "on their way";
  EXPECT_THROW(store.gather(2).whole(), core::Error) << "twice at once";
  EXPECT_THROW(store.reshard(2), core::Error);
  std::move(gathering).done();
  EXPECT_NO_THROW(store.weight(0));
  EXPECT_THROW(std::move(gathering).done(), core::Error);  // NOLINT(bugprone-use-after-move)
  EXPECT_THROW(ParameterStore::Landed().shard(), core::Error);
  EXPECT_THROW(ParameterStore::Landed().add(ranks.lane()), core::Error);
}

TEST(Store, EachParameterIsInOneBucket) {
  const auto device = core::make_cpu_device();
  Memory memory(*device);
  kernels::ThreadPool pool(1);
  const kernels::Context where(pool);
  const std::vector<workload::Parameter> two = {{.name = "a", .shape = {3}}, {.name = "b", .shape = {3}}};
  const auto make = [&](std::vector<std::vector<std::size_t>> buckets, StoreOptions options) {
    const ParameterStore store(memory, where, two, {}, std::move(buckets), options);
  };
  EXPECT_NO_THROW(make({{1}, {0}}, {}));
  EXPECT_THROW(make({{1}}, {}), core::Error);
  EXPECT_THROW(make({{0, 1}, {1}}, {}), core::Error);
  EXPECT_THROW(make({{0, 1}}, {.zero = 4}), core::Error);
  EXPECT_THROW(make({{0, 1}}, {.shards = 2, .shard = 2}), core::Error);
  EXPECT_THROW(make({{0, 1}}, {.gradient = DType::bf16}), core::Error);
  EXPECT_THROW(make({{0, 1}}, {.compute = DType::i32}), core::Error);
}

}  // namespace
}  // namespace lockstep::parallel
