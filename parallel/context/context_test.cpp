// All context ranks of a layer in one thread: their exchanges are copies from one rank's memory to another's.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/device.h"
#include "core/dtype.h"
#include "core/error.h"
#include "kernels/attention/attention.h"
#include "kernels/base/thread_pool.h"
#include "kernels/residual/residual.h"
#include "parallel/context/context_attention.h"
#include "workload/context_layer.h"

namespace lockstep::parallel {

class ContextRanks {
 public:
  ContextRanks(ContextLayer layer, const Workspace& workspace) : workspace_(workspace) {
    for (layer.rank = 0; layer.rank < layer.shape.ranks; ++layer.rank) {
      plans_.push_back(std::make_unique<ContextPlan>(layer));
      ranks_.push_back(make_context_attention(*plans_.back(), workspace));
    }
  }

  ContextAttention& rank(std::size_t r) { return *ranks_[r]; }
  const ContextPlan& plan(std::size_t r) const { return *plans_[r]; }

  void forward() { run(false); }
  void backward() { run(true); }
  double sent_bytes(std::size_t r) const { return sent_bytes_.empty() ? 0 : sent_bytes_[r]; }

 private:
  std::int32_t turns() const { return plans_.front()->list().turns(); }

  // The pieces in the order in which the step model has them.
  void run(bool backward) {
    for (std::int32_t step = 0; step < turns(); ++step) {
      const std::int32_t turn = backward ? turns() - 1 - step : step;
      const auto places = workload::places_of(plans_.front()->turn(backward, turn), turn);
      exchange_all(places, backward, false);
      for (const auto& rank : ranks_) backward ? rank->core_gradient(turn) : rank->core(turn);
      if (step > 0) merge(backward ? turn + 1 : turn - 1, backward);
      exchange_all(places, backward, true);
      if (step + 1 == turns()) merge(turn, backward);
    }
  }
  void merge(std::int32_t turn, bool backward) {
    for (const auto& rank : ranks_) backward ? rank->merge_gradients(turn) : rank->merge(turn);
  }
  void exchange_all(const std::vector<workload::ExchangePosition>& places, bool backward, bool results) {
    for (const workload::ExchangePosition& place : places) {
      if (place.results == results) exchange(backward, place);
    }
  }

  void exchange(bool backward, const workload::ExchangePosition& place) {
    std::vector<Exchange> moves;
    for (const auto& rank : ranks_) moves.push_back(rank->exchange(backward, place));
    sent_bytes_.resize(ranks_.size());
    for (std::size_t from = 0; from < ranks_.size(); ++from) {
      for (std::size_t to = 0; to < ranks_.size(); ++to)
        move(moves, from, to, plans_.front()->exchange(backward, place));
    }
    for (const auto& rank : ranks_) rank->exchanged(backward, place);
  }

  void move(const std::vector<Exchange>& moves, std::size_t from, std::size_t to,
            const workload::ContextExchange& exchange) {
    const auto* const source = moves[from].input.as<std::byte>();
    auto* const target = moves[to].output.as<std::byte>();
    const std::size_t in_bytes = kernels::size_bytes(moves[from].input.dtype, moves[from].input.elems);
    const std::size_t out_bytes = kernels::size_bytes(moves[to].output.dtype, moves[to].output.elems);
    const std::size_t ranks = ranks_.size();
    std::size_t bytes = 0;
    switch (exchange.comm) {
      case schedules::Comm::shift:
        bytes = static_cast<std::size_t>(moves[from].matrix->at(static_cast<int>(from), static_cast<int>(to)));
        if (bytes == 0) return;
        LOCKSTEP_CHECK(bytes == in_bytes && bytes == out_bytes, "both know what moves");
        std::memcpy(target, source, bytes);
        break;
      case schedules::Comm::all_gather:
        bytes = in_bytes;
        std::memcpy(target + from * bytes, source, bytes);
        break;
      case schedules::Comm::all_to_all:
        bytes = in_bytes / ranks;
        std::memcpy(target + from * bytes, source + to * bytes, bytes);
        break;
      default: {
        bytes = out_bytes;
        const std::int64_t elems = moves[to].output.elems;
        const kernels::In term{source + to * bytes, moves[to].output.dtype, elems};
        if (from == 0) {
          std::memcpy(target, term.data, bytes);
        } else {
          const kernels::Out sum = moves[to].output;
          kernels::run(kernels::ResidualAdd{.count = elems, .a = {target, sum.dtype, elems}, .b = term, .y = sum},
                       workspace_.where);
        }
      }
    }
    if (from != to) sent_bytes_[from] += static_cast<double>(bytes);
  }

  const Workspace workspace_;
  std::vector<std::unique_ptr<ContextPlan>> plans_;
  std::vector<std::unique_ptr<ContextAttention>> ranks_;
  std::vector<double> sent_bytes_;
};

// Attention shared out over context ranks, in every way, against one rank's.
namespace {

using workload::ContextWay;
using Values = std::vector<float>;

// The results of a layer: its output, and the gradient of its input.
struct Outcome {
  Values o, d_qkv;
};

class ContextTest : public testing::Test {
 protected:
  Tensor tensor(const Values& values, core::DType dtype) {
    Tensor tensor = memory_.make(MemoryKind::activations, dtype, static_cast<std::int64_t>(values.size()));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (dtype == core::DType::f32) {
        tensor.as<float>()[i] = values[i];
      } else {
        tensor.as<core::BFloat16>()[i] = core::to_bfloat16(values[i]);
      }
    }
    return tensor;
  }
  static Values values_of(kernels::In view) {
    Values values(static_cast<std::size_t>(view.elems));
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = view.dtype == core::DType::f32 ? view.as<float>()[i] : core::to_float(view.as<core::BFloat16>()[i]);
    }
    return values;
  }

  // Copies rows of one rank's tokens out of whole sequences, or into them.
  static Values rows_of(const ContextLayer& layer, std::int32_t rank, const Values& all) {
    Values own;
    for_rows(layer, rank, all.size(), [&](std::size_t at, std::size_t columns) {
      own.insert(own.end(), all.begin() + static_cast<std::ptrdiff_t>(at),
                 all.begin() + static_cast<std::ptrdiff_t>(at + columns));
    });
    return own;
  }
  static void put_rows(const ContextLayer& layer, std::int32_t rank, const Values& own, Values& all) {
    std::size_t next = 0;
    for_rows(layer, rank, all.size(), [&](std::size_t at, std::size_t columns) {
      std::copy_n(own.begin() + static_cast<std::ptrdiff_t>(next), columns,
                  all.begin() + static_cast<std::ptrdiff_t>(at));
      next += columns;
    });
  }
  template <class Visit>
  static void for_rows(const ContextLayer& layer, std::int32_t rank, std::size_t elems, const Visit& visit) {
    const std::size_t columns = elems / static_cast<std::size_t>(layer.batch * layer.length);
    for (std::int64_t b = 0; b < layer.batch; ++b) {
      for (const std::int32_t chunk : workload::chunks_of(layer.shape, rank)) {
        for (std::int64_t i = 0; i < layer.chunk(); ++i) {
          visit(static_cast<std::size_t>(b * layer.length + chunk * layer.chunk() + i) * columns, columns);
        }
      }
    }
  }

  static Values drawn(std::int64_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 1);
    Values values(static_cast<std::size_t>(count));
    for (float& value : values) value = core::to_float(core::to_bfloat16(normal(random)));
    return values;
  }

  // One rank's, in f32, whatever the dtype.
  Outcome alone(const ContextLayer& layer, const Values& qkv, const Values& d_o) {
    const Tensor in = tensor(qkv, core::DType::f32);
    const Tensor d_out = tensor(d_o, core::DType::f32);
    const Tensor o = tensor(Values(d_o.size()), core::DType::f32);
    const Tensor lse =
        tensor(Values(static_cast<std::size_t>(layer.batch * layer.length * layer.heads)), core::DType::f32);
    const Tensor d_in = tensor(Values(qkv.size()), core::DType::f32);
    const std::int64_t row = layer.query_columns();
    const kernels::AttentionShape shape{.batch = layer.batch,
                                        .heads = layer.heads,
                                        .queries = layer.length,
                                        .keys = layer.length,
                                        .head_columns = layer.head_columns,
                                        .causal = layer.shape.causal,
                                        .qkv_stride = layer.fused_columns(),
                                        .kv_heads = layer.kv_heads};
    const std::int64_t extent = shape.extent();
    const std::int64_t key_extent = shape.key_extent();
    const std::int64_t keys = row + layer.key_columns();  // where values begin
    kernels::run(kernels::AttentionForward{.shape = shape,
                                           .q = in.in(0, extent),
                                           .k = in.in(row, key_extent),
                                           .v = in.in(keys, key_extent),
                                           .o = o.out(),
                                           .lse = lse.out()},
                 where_);
    kernels::run(kernels::AttentionBackward{.shape = shape,
                                            .q = in.in(0, extent),
                                            .k = in.in(row, key_extent),
                                            .v = in.in(keys, key_extent),
                                            .o = o.in(),
                                            .lse = lse.in(),
                                            .d_o = d_out.in(),
                                            .dq = d_in.out(0, extent),
                                            .dk = d_in.out(row, key_extent),
                                            .dv = d_in.out(keys, key_extent)},
                 where_);
    return {values_of(o.in()), values_of(d_in.in())};
  }

  Outcome shared(const ContextLayer& layer, const Values& qkv, const Values& d_o) {
    ContextRanks ranks(layer, workspace_);
    Outcome outcome{Values(d_o.size()), Values(qkv.size())};
    std::vector<Tensor> d_outs;
    for (std::int32_t r = 0; r < layer.shape.ranks; ++r) {
      ranks.rank(static_cast<std::size_t>(r)).split(tensor(rows_of(layer, r, qkv), layer.dtype).in());
    }
    ranks.forward();
    for (std::int32_t r = 0; r < layer.shape.ranks; ++r) {
      ContextAttention& rank = ranks.rank(static_cast<std::size_t>(r));
      put_rows(layer, r, values_of(rank.output()), outcome.o);
      d_outs.push_back(tensor(rows_of(layer, r, d_o), layer.dtype));
      rank.begin_backward(d_outs.back().in());
    }
    ranks.backward();
    for (std::int32_t r = 0; r < layer.shape.ranks; ++r) {
      const Tensor d_in = tensor(Values(qkv.size() / static_cast<std::size_t>(layer.shape.ranks)), layer.dtype);
      ranks.rank(static_cast<std::size_t>(r)).join(d_in.out());
      put_rows(layer, r, values_of(d_in.in()), outcome.d_qkv);
      ranks.rank(static_cast<std::size_t>(r)).give_up_output();
    }
    for (std::int32_t r = 0; r < layer.shape.ranks; ++r) {
      const ContextPlan& plan = ranks.plan(static_cast<std::size_t>(r));
      const workload::ContextBytes bytes = bytes_sent(plan.list(), plan.layer());
      EXPECT_DOUBLE_EQ(ranks.sent_bytes(static_cast<std::size_t>(r)), bytes.forward + bytes.backward);
    }
    return outcome;
  }

  // The largest difference, of the largest element.
  static double difference(const Values& found, const Values& expected) {
    double largest = 0;
    double worst = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      largest = std::max(largest, std::fabs(static_cast<double>(expected[i])));
      const double error = std::fabs(static_cast<double>(found[i]) - static_cast<double>(expected[i]));
      if (!(error <= worst)) worst = error;
    }
    return worst / largest;
  }

  void expect_alike(ContextLayer layer) {
    const Values qkv = drawn(layer.batch * layer.length * layer.fused_columns(), 3);
    const Values d_o = drawn(layer.batch * layer.length * layer.query_columns(), 4);
    const Outcome wanted = alone(layer, qkv, d_o);
    const Outcome found = shared(layer, qkv, d_o);
    SCOPED_TRACE(std::string(name_of(layer.shape.way)) + " of " + std::to_string(layer.shape.ranks));
    const std::string what = std::string(name_of(layer.shape.way)) + " of " + std::to_string(layer.shape.ranks) +
                             ", batch " + std::to_string(layer.batch) + (layer.shape.causal ? ", causal" : "");
    const bool wide = layer.dtype == core::DType::f32;
    const double unit = wide ? 0x1p-24 : 0x1p-9;
    const double allowed = wide ? 1e-5 : (layer.shape.ranks + 4) * 2 * unit;
    EXPECT_LE(difference(found.o, wanted.o), allowed) << what;
    EXPECT_LE(difference(found.d_qkv, wanted.d_qkv), allowed) << what;
    EXPECT_EQ(total_of(memory_.now()), 0) << what;
  }

  std::unique_ptr<core::Device> device_ = core::make_cpu_device();
  kernels::ThreadPool pool_{1};
  kernels::Context where_{pool_};
  Memory memory_{*device_};
  Workspace workspace_{memory_, where_};
};

TEST_F(ContextTest, EveryWayGivesOneRanksOutputAndGradients) {
  for (std::size_t way = 0; way < workload::kContextWays.size(); ++way) {
    for (const std::int32_t ranks : {1, 2, 3, 4, 5}) {
      for (const bool causal : {true, false}) {
        const workload::ContextShape shape{static_cast<ContextWay>(way), ranks, causal};
        if (!why_invalid(shape).empty()) continue;
        for (const std::int64_t batch : {1, 2}) {
          for (const core::DType dtype : {core::DType::f32, core::DType::bf16}) {
            const std::int64_t kv_heads = ranks == 1 ? 3 : ranks;
            expect_alike(
                {.shape = shape,
                 .batch = batch,
                 .length = std::int64_t{12} * ranks,
                 .heads = shape.way == ContextWay::colossal ? kv_heads : kv_heads * batch,  // groups of two, too
                 .kv_heads = kv_heads,
                 .head_columns = 8,
                 .dtype = dtype});
          }
        }
      }
    }
  }
}

TEST_F(ContextTest, RefusesHeadsThatRanksCannotShareOut) {
  const ContextLayer layer{
      .shape = {ContextWay::ulysses, 4}, .length = 16, .heads = 6, .kv_heads = 6, .head_columns = 8};
  EXPECT_THROW(ContextPlan plan(layer), core::Error);
}

}  // namespace
}  // namespace lockstep::parallel
