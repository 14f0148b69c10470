// Stores of one layout write, stores of another read: every element of the optimizer's state has the same bits.
#include "trainer/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/store.h"
#include "testing/trainer/checkpoint_ranks.h"

namespace lockstep::trainer {
namespace {

using parallel::ParameterStore;
using State = ParameterStore::State;
constexpr State kStates[] = {State::master, State::first_moment, State::second_moment};

struct Layout {
  std::int32_t tensor_ranks;
  std::int32_t shards;
  std::int32_t zero;
};

const std::vector<workload::Parameter> kParameters = {
    {.name = "words", .shape = {11, 6}, .split = workload::Split::rows},
    {.name = "norm", .shape = {6}},
    {.name = "qkv", .shape = {12, 6}, .split = workload::Split::rows, .blocks = {4, 4, 4}},
    {.name = "proj", .shape = {6, 8}, .split = workload::Split::columns},
};

struct Rank {
  Rank(const kernels::Context& where, workload::TensorRank place, const parallel::StoreOptions& options)
      : store(memory, where, kParameters, place, {{3, 1}, {2, 0}}, options) {}

  std::unique_ptr<core::Device> device = core::make_cpu_device();
  parallel::Memory memory{*device};
  ParameterStore store;
};

class World {
 public:
  explicit World(const Layout& layout) {
    for (std::int32_t t = 0; t < layout.tensor_ranks; ++t) {
      for (std::int32_t d = 0; d < layout.shards; ++d) {
        const parallel::StoreOptions options{
            .compute = core::DType::bf16, .zero = layout.zero, .shards = layout.shards, .shard = d};
        ranks_.push_back(
            std::make_unique<Rank>(kernels::Context(pool_), workload::TensorRank{layout.tensor_ranks, t}, options));
      }
    }
  }
  std::vector<ParameterStore*> stores() {
    std::vector<ParameterStore*> all;
    for (const auto& rank : ranks_) all.push_back(&rank->store);
    return all;
  }

 private:
  kernels::ThreadPool pool_{1};
  std::vector<std::unique_ptr<Rank>> ranks_;
};

float value_of(State state, std::size_t parameter, std::int64_t element) {
  return known_value(parameter, element, static_cast<std::int64_t>(state));
}

void fill(ParameterStore& store) {
  for (const State state : kStates) {
    for (const ParameterStore::Run& run : store.runs(state)) {
      for (std::int64_t k = 0; k < run.count; ++k) run.data[k] = value_of(state, run.parameter, run.whole_begin + k);
    }
    store.store_back(state);
  }
}

std::int64_t num_wrong(ParameterStore& store) {
  std::int64_t wrong = 0;
  for (const State state : kStates) {
    for (const ParameterStore::Run& run : store.runs(state)) {
      for (std::int64_t k = 0; k < run.count; ++k) {
        wrong += run.data[k] != value_of(state, run.parameter, run.whole_begin + k) ? 1 : 0;
      }
    }
  }
  return wrong;
}

void save(const std::string& folder, World& world) {
  std::vector<ParameterStore*> stores = world.stores();
  const auto errors = run_writers(static_cast<std::int32_t>(stores.size()), [&](const CheckpointRanks& ranks) {
    Held held;
    add_state(*stores[static_cast<std::size_t>(ranks.rank)], held);
    save_checkpoint(folder, {.step = 1}, held.tensors, held.pieces, ranks, 1);
  });
  for (const std::string& error : errors) ASSERT_EQ(error, "");
}

TEST(StoreState, EveryLayoutReadsWhatEveryLayoutWrote) {
  constexpr Layout kLayouts[] = {{1, 1, 0}, {1, 3, 0}, {1, 4, 1}, {2, 1, 0}, {2, 2, 2}, {2, 3, 3}};
  for (const Layout& writing : kLayouts) {
    const TemporaryFolder folder;
    World written(writing);
    for (ParameterStore* const store : written.stores()) fill(*store);
    save(folder.path(), written);
    for (const Layout& reading : kLayouts) {
      World read(reading);
      for (ParameterStore* const store : read.stores()) {
        Held held;
        add_state(*store, held);
        for (const Piece& piece : held.pieces) std::fill_n(piece.data, piece.count, -1.0F);
        Checkpoint(folder.path()).read(held.tensors, held.pieces);
        state_was_read(*store);
        EXPECT_EQ(num_wrong(*store), 0);
      }
    }
  }
}

// The weights that kernels read follow the masters.
TEST(StoreState, WeightsFollow) {
  World world({1, 1, 0});
  ParameterStore& store = *world.stores().front();
  Held held;
  add_masters(store, held);
  EXPECT_EQ(held.tensors.front().name, store.parameters().front().name);
  for (const Piece& piece : held.pieces) std::fill_n(piece.data, piece.count, 1.25F);
  masters_were_read(store);
  for (std::size_t p = 0; p < store.parameters().size(); ++p) {
    const kernels::In weight = store.weight(p);
    for (std::int64_t k = 0; k < kParameters[p].elems(); ++k) {
      EXPECT_EQ(core::to_float(weight.as<core::BFloat16>()[k]), 1.25F);
    }
  }
}

}  // namespace
}  // namespace lockstep::trainer
