#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/quantize/quantize.h"
#include "kernels/reduce/reduction.h"
#include "parallel/compress/reductions.h"

namespace lockstep::parallel {
namespace {

using core::DType;

constexpr std::int64_t kPieceElems = 32 * kCompressionBlock;  // of every rank at once, in a core's cache

class Int8AllReduce final : public collectives::Collective {
 public:
  Int8AllReduce(const GradientReduction& reduction, std::unique_ptr<collectives::Collective> exchange,
                std::unique_ptr<collectives::Collective> gather, Memory& memory, const kernels::Context& where);
  void run(const void* input, void* output) override;

 private:
  // Elements [begin, begin + count) of a share, in a buffer of messages; begin is at a whole block.
  struct Codes {
    std::byte* codes;
    std::byte* scales;
  };
  Codes codes_of(const Tensor& messages, int rank, std::int64_t begin) const;
  void quantize(const kernels::In& x, const Tensor& messages, int rank) const;
  void dequantize(const Tensor& messages, int rank, std::int64_t begin, const kernels::Out& y) const;
  void quantize_shares(const void* input);
  void sum_own_share();

  const int num_ranks_;
  const int rank_;
  const std::int64_t average_over_;                          // 0: not at all
  const std::unique_ptr<collectives::Collective> exchange_;  // all-to-all of messages
  const std::unique_ptr<collectives::Collective> gather_;    // all-gather of messages, in place
  const kernels::Context where_;
  const Shares shares_;
  const Tensor sent_;      // [rank] messages; then the sums of all shares
  const Tensor received_;  // [rank] messages
  const Tensor sum_;       // of the own share
  const Tensor pieces_;    // [rank][kPieceElems]
};

Int8AllReduce::Int8AllReduce(const GradientReduction& reduction, std::unique_ptr<collectives::Collective> exchange,
                             std::unique_ptr<collectives::Collective> gather, Memory& memory,
                             const kernels::Context& where)
    : num_ranks_(reduction.num_ranks),
      rank_(reduction.rank),
      average_over_(reduction.op == core::ReduceOp::avg ? reduction.num_ranks : 0),
      exchange_(std::move(exchange)),
      gather_(std::move(gather)),
      where_(where),
      shares_(reduction.elems, reduction.num_ranks),
      sent_(memory.make_zeroed(MemoryKind::buffers, DType::i8, shares_.message_bytes() * num_ranks_)),
      received_(memory.make_zeroed(MemoryKind::buffers, DType::i8, shares_.message_bytes() * num_ranks_)),
      sum_(memory.make(MemoryKind::buffers, DType::f32, shares_.share)),
      pieces_(memory.make(MemoryKind::buffers, DType::f32, kPieceElems * num_ranks_)) {}

Int8AllReduce::Codes Int8AllReduce::codes_of(const Tensor& messages, int rank, std::int64_t begin) const {
  std::byte* message = messages.as<std::byte>() + shares_.message_bytes() * rank;
  const auto scales = shares_.share + begin / kCompressionBlock * std::int64_t{sizeof(float)};
  return {message + begin, message + scales};
}

void Int8AllReduce::quantize(const kernels::In& x, const Tensor& messages, int rank) const {
  const Codes to = codes_of(messages, rank, 0);
  kernels::Quantize args{x.elems, kCompressionBlock, x};
  args.codes = {to.codes, DType::i8, args.count};
  args.scales = {to.scales, DType::f32, args.blocks()};
  kernels::run(args, where_);
}

void Int8AllReduce::dequantize(const Tensor& messages, int rank, std::int64_t begin, const kernels::Out& y) const {
  const Codes from = codes_of(messages, rank, begin);
  kernels::Dequantize args{y.elems, kCompressionBlock};
  args.codes = {from.codes, DType::i8, args.count};
  args.scales = {from.scales, DType::f32, args.blocks()};
  args.y = y;
  kernels::run(args, where_);
}

void Int8AllReduce::quantize_shares(const void* input) {
  const kernels::In x{input, DType::f32, shares_.elems};
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const std::int64_t used = shares_.used(rank);
    if (used > 0) quantize({x.as<float>() + shares_.begin(rank), DType::f32, used}, sent_, rank);
  }
}

// In the order of ranks, piece by piece; then quantised into the own place of what is gathered.
void Int8AllReduce::sum_own_share() {
  const std::int64_t used = shares_.used(rank_);
  if (used == 0) return;
  for (std::int64_t begin = 0; begin < used; begin += kPieceElems) {
    const std::int64_t count = std::min(kPieceElems, used - begin);
    kernels::Reduction sum{count, num_ranks_, DType::f32, core::ReduceOp::sum, average_over_};
    for (int rank = 0; rank < num_ranks_; ++rank) {
      dequantize(received_, rank, begin, pieces_.out(kPieceElems * rank, count));
      sum.sources.push_back(pieces_.in(kPieceElems * rank, count));
    }
    sum.destination = sum_.out(begin, count);
    kernels::run(sum, where_);
  }
  quantize(sum_.in(0, used), sent_, rank_);
}

void Int8AllReduce::run(const void* input, void* output) {
  quantize_shares(input);
  exchange_->run(sent_.data(), received_.data());
  sum_own_share();
  gather_->run(codes_of(sent_, rank_, 0).codes, sent_.data());
  for (int rank = 0; rank < num_ranks_; ++rank) {
    const std::int64_t used = shares_.used(rank);
    if (used == 0) continue;
    dequantize(sent_, rank, 0, {static_cast<float*>(output) + shares_.begin(rank), DType::f32, used});
  }
}

}  // namespace

backends::Prepared prepare_int8(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                const kernels::Context& where) {
  collectives::Operation operation;
  operation.dtype = DType::i8;
  operation.count = Shares(reduction.elems, reduction.num_ranks).message_bytes();
  operation.kind = collectives::Kind::all_to_all;
  backends::Prepared exchange = prepare(operation, "auto");
  operation.kind = collectives::Kind::all_gather;
  operation.in_place = true;
  backends::Prepared gather = prepare(operation, "auto");
  const std::string label = exchange.algorithm + "+" + gather.algorithm + "+int8";
  auto collective = std::make_unique<Int8AllReduce>(reduction, std::move(exchange.collective),
                                                    std::move(gather.collective), memory, where);
  return {std::move(collective), label, gather.executor, std::nullopt};
}

}  // namespace lockstep::parallel
