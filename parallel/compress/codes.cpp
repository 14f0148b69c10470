#include "parallel/compress/compress.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/compress/compress.h"
#include "kernels/copy/copy.h"
#include "kernels/fp8/fp8.h"
#include "kernels/quantize/quantize.h"
#include "kernels/reduce/reduction.h"

namespace lockstep::parallel {
namespace {

using core::DType;
using kernels::Context;
using kernels::In;
using kernels::Out;
using workload::CompressionWay;
using workload::Shares;

// `Args`: arguments of a kernel, beginning with count and block, with codes of type `kCodes` and scales.
template <class Args, CompressionWay kWay, DType kCodes>
Args arguments(std::int64_t count, const std::byte* codes, const std::byte* scales) {
  const workload::CodeShape shape = workload::code_shape(kWay);
  Args args{count, shape.block};
  args.codes = {const_cast<std::byte*>(codes), kCodes, shape.code_bytes(count)};
  args.scales = {const_cast<std::byte*>(scales), DType::f32, shape.blocks(count)};
  return args;
}

template <class Args, CompressionWay kWay, DType kCodes>
void encode(const In& x, std::byte* codes, std::byte* scales, const Context& where) {
  auto args = arguments<Args, kWay, kCodes>(x.elems, codes, scales);
  args.x = x;
  kernels::run(args, where);
}

template <class Args, CompressionWay kWay, DType kCodes>
void decode(const std::byte* codes, const std::byte* scales, const Out& y, const Context& where) {
  auto args = arguments<Args, kWay, kCodes>(y.elems, codes, scales);
  args.y = y;
  kernels::run(args, where);
}

template <class Encode, class Decode, CompressionWay kWay, DType kCodes>
constexpr CodeFormat format(std::string_view name, double most_error) {
  return {name, most_error, encode<Encode, kWay, kCodes>, decode<Decode, kWay, kCodes>};
}

// Treats the elements as one row whose tiles are the blocks.
void encode_fp8(const In& x, std::byte* codes, std::byte* scales, const Context& where) {
  const std::int64_t blocks = workload::code_shape(CompressionWay::fp8).blocks(x.elems);
  std::vector<float> largest(static_cast<std::size_t>(blocks));
  kernels::Fp8Encode args{.rows = 1, .columns = x.elems, .per = kernels::ScalePer::tile, .x = x};
  args.largest = {largest.data(), DType::f32, blocks};
  args.scales = {scales, DType::f32, blocks};
  args.codes = {codes, args.to, x.elems};
  kernels::run(args, where);
}

void decode_fp8(const std::byte* codes, const std::byte* scales, const Out& y, const Context& where) {
  kernels::Fp8Decode args{.rows = 1, .columns = y.elems, .per = kernels::ScalePer::tile, .y = y};
  args.codes = {codes, args.from, y.elems};
  args.scales = {scales, DType::f32, args.blocks()};
  kernels::run(args, where);
}

// The error is half a step of the codes; for signs, the entire element. E4M3's relative error is at most 1/16, and its
// scales, powers of two, put the largest element into the upper half of its range.
constexpr auto kInt8 =
    format<kernels::Quantize, kernels::Dequantize, CompressionWay::int8, DType::i8>("int8", 0.5 / 127);
constexpr auto kInt4 =
    format<kernels::QuantizeInt4, kernels::DequantizeInt4, CompressionWay::int4, DType::u8>("int4", 0.5 / 7);
constexpr CodeFormat kFp8{"fp8", 1.0 / 16, encode_fp8, decode_fp8};
constexpr auto kSign = format<kernels::EncodeSigns, kernels::DecodeSigns, CompressionWay::sign, DType::u8>("sign", 1);

}  // namespace

const CodeFormat& format_of(CompressionWay way) {
  switch (way) {
    case CompressionWay::int8:
      return kInt8;
    case CompressionWay::int4:
      return kInt4;
    case CompressionWay::fp8:
      return kFp8;
    default:
      LOCKSTEP_CHECK(way == CompressionWay::sign, "a compression that sends codes");
      return kSign;
  }
}

namespace {

constexpr std::int64_t kPieceElems = 8192;  // over all ranks, fits a core's cache; whole blocks

// Messages of all ranks in order: codes, then scales.
class CodeMessages {
 public:
  CodeMessages(CompressionWay way, const Shares& shares, int ranks, Memory& memory, const Context& where)
      : format_(format_of(way)),
        shares_(shares),
        where_(where),
        messages_(memory.make_zeroed(MemoryKind::buffers, DType::i8, shares_.message_bytes() * ranks)),
        piece_(memory.make(MemoryKind::buffers, DType::f32, std::min(shares_.share, kPieceElems))) {}

  void* message(int rank) const { return messages_.as<std::byte>() + shares_.message_bytes() * rank; }
  void* data() const { return messages_.data(); }

  // x: the used elements of a rank's share.
  void encode(int rank, const In& x) const {
    if (x.elems == 0) return;
    auto* const codes = static_cast<std::byte*>(message(rank));
    format_.encode(x, codes, codes + shares_.shape.scales_at(shares_.share), where_);
  }
  // Decodes elements of a rank's share from `begin` on, which is the start of a block.
  void decode(int rank, std::int64_t begin, const Out& y) const {
    if (y.elems == 0) return;
    const auto* const codes = static_cast<const std::byte*>(message(rank));
    const std::byte* const scales = codes + shares_.shape.scales_at(shares_.share) +
                                    sizeof(float) * static_cast<std::size_t>(shares_.shape.blocks(begin));
    format_.decode(codes + shares_.shape.code_bytes(begin), scales, y, where_);
  }
  // Subtracts a rank's message, whose first element is at `begin`, from the pending error.
  void take_off(int rank, std::int64_t begin, std::int64_t elems, ErrorFeedback& owed) const {
    for (std::int64_t at = 0; at < elems; at += kPieceElems) {
      const std::int64_t count = std::min(kPieceElems, elems - at);
      decode(rank, at, piece_.out(0, count));
      owed.take_off(begin + at, piece_.in(0, count));
    }
  }

 private:
  const CodeFormat& format_;
  const Shares shares_;
  const Context where_;
  const Tensor messages_;
  const Tensor piece_;
};

// The first half of sums of codes, and all of a reduce-scatter: each rank sends every other rank its share of the
// elements as codes (all-to-all) and sums the received codes of its own share in f32, in rank order. With one hop this
// is ZeRO++'s qgZ: Wang et al. 2023, arXiv:2306.10209, section 3.3.
class CodeExchange {
 public:
  CodeExchange(const GradientReduction& reduction, const Shares& shares,
               std::unique_ptr<collectives::Collective> exchange, Memory& memory, const Context& where)
      : num_ranks_(reduction.num_ranks),
        average_over_(reduction.op == core::ReduceOp::avg ? reduction.num_ranks : 0),
        exchange_(std::move(exchange)),
        where_(where),
        shares_(shares),
        sent_(reduction.compression.way, shares, num_ranks_, memory, where),
        received_(reduction.compression.way, shares, num_ranks_, memory, where),
        pieces_(memory.make(MemoryKind::buffers, DType::f32, kPieceElems * num_ranks_)) {
    if (reduction.compression.feedback) owed_.emplace(shares_.elems, *reduction.state, memory, where);
  }

  // Computes the sum, or average, of all ranks' inputs in this rank's share: `sum` [used elements].
  void run(const In& input, const Out& sum) {
    if (owed_) owed_->add(input);
    const In x = owed_ ? owed_->owed().in() : input;
    for (int rank = 0; rank < num_ranks_; ++rank) {
      const std::int64_t begin = shares_.begin(rank);
      sent_.encode(rank, {x.as<float>() + begin, DType::f32, shares_.used(rank)});
      if (owed_) sent_.take_off(rank, begin, shares_.used(rank), *owed_);
    }
    exchange_->run(sent_.data(), received_.data());
    for (std::int64_t begin = 0; begin < sum.elems; begin += kPieceElems) {
      const std::int64_t count = std::min(kPieceElems, sum.elems - begin);
      kernels::Reduction add{count, num_ranks_, DType::f32, core::ReduceOp::sum, average_over_};
      for (int rank = 0; rank < num_ranks_; ++rank) {
        received_.decode(rank, begin, pieces_.out(kPieceElems * rank, count));
        add.sources.push_back(pieces_.in(kPieceElems * rank, count));
      }
      add.destination = {sum.as<float>() + begin, DType::f32, count};
      kernels::run(add, where_);
    }
  }
  const Shares& shares() const { return shares_; }
  const CodeMessages& sent() const { return sent_; }  // may be reused after run()

 private:
  const int num_ranks_;
  const std::int64_t average_over_;                          // 0: no averaging
  const std::unique_ptr<collectives::Collective> exchange_;  // all-to-all of messages
  const Context where_;
  const Shares shares_;
  const CodeMessages sent_;
  const CodeMessages received_;
  const Tensor pieces_;  // [rank][kPieceElems]
  std::optional<ErrorFeedback> owed_;
};

// After the exchange each rank encodes the sum of its share and sends it to all (all-gather): two roundings regardless
// of the number of ranks, and codes are never added. For `sign` this is the compressed all-reduce of 1-bit Adam, with
// its two errors (Tang et al. 2021, arXiv:2102.02888, section 5).
class CodesAllReduce final : public collectives::Collective {
 public:
  CodesAllReduce(const GradientReduction& reduction, const Shares& shares,
                 std::unique_ptr<collectives::Collective> exchange, std::unique_ptr<collectives::Collective> gather,
                 Memory& memory, const kernels::Context& where)
      : num_ranks_(reduction.num_ranks),
        rank_(reduction.rank),
        state_(reduction.compression.feedback ? reduction.state : nullptr),
        exchange_(reduction, shares, std::move(exchange), memory, where),
        gather_(std::move(gather)),
        sum_(memory.make(MemoryKind::buffers, DType::f32, shares.share)) {
    if (state_ != nullptr) owed_.emplace(shares.share, *state_, memory, where);
  }

  void run(const void* input, void* output) override {
    const Shares& shares = exchange_.shares();
    const CodeMessages& messages = exchange_.sent();
    const std::int64_t own = shares.used(rank_);
    exchange_.run({input, DType::f32, shares.elems}, sum_.out(0, own));
    if (owed_ && own > 0) owed_->add(sum_.in(0, own));
    messages.encode(rank_, owed_ ? owed_->owed().in(0, own) : sum_.in(0, own));
    if (owed_) messages.take_off(rank_, 0, own, *owed_);
    gather_->run(messages.message(rank_), messages.data());
    for (int rank = 0; rank < num_ranks_; ++rank) {
      messages.decode(rank, 0, {static_cast<float*>(output) + shares.begin(rank), DType::f32, shares.used(rank)});
    }
    if (state_ != nullptr) ++state_->calls;
  }

 private:
  const int num_ranks_;
  const int rank_;
  CompressionState* const state_;  // with error feedback
  CodeExchange exchange_;
  const std::unique_ptr<collectives::Collective> gather_;  // all-gather of messages, in place
  const Tensor sum_;                                       // sum of this rank's share
  std::optional<ErrorFeedback> owed_;                      // error of the encoded sum
};

class CodesReduceScatter final : public collectives::Collective {
 public:
  CodesReduceScatter(const GradientReduction& reduction, const Shares& shares,
                     std::unique_ptr<collectives::Collective> exchange, Memory& memory, const kernels::Context& where)
      : state_(reduction.compression.feedback ? reduction.state : nullptr),
        exchange_(reduction, shares, std::move(exchange), memory, where) {}

  void run(const void* input, void* output) override {
    const Shares& shares = exchange_.shares();
    exchange_.run({input, DType::f32, shares.elems}, {output, DType::f32, shares.share});
    if (state_ != nullptr) ++state_->calls;
  }

 private:
  CompressionState* const state_;
  CodeExchange exchange_;
};

// ZeRO++'s qgZ (Wang et al. 2023, sections 3.3 and 4.3): only sums over neighbours leave a set of neighbours, so that a
// set sends as many bytes as one rank alone would. Rank r of n ends with share r and is at position r % near of set r /
// near: for the first hop the shares of one position are made contiguous ("tensor slice reordering").
class TwoHopScatter final : public collectives::Collective {
 public:
  TwoHopScatter(const GradientReduction& reduction, std::unique_ptr<CodeExchange> near,
                std::unique_ptr<CodeExchange> far, Memory& memory, const kernels::Context& where)
      : state_(reduction.compression.feedback ? reduction.state : nullptr),
        near_(std::move(near)),
        far_(std::move(far)),
        where_(where),
        by_place_(memory.make(MemoryKind::buffers, DType::f32, near_->shares().elems)),
        sum_(memory.make(MemoryKind::buffers, DType::f32, near_->shares().share)) {}

  void run(const void* input, void* output) override {
    const std::int64_t share = far_->shares().share;
    const std::int64_t places = near_->shares().elems / near_->shares().share;
    const std::int64_t sets = far_->shares().elems / share;
    for (std::int64_t place = 0; place < places; ++place) {
      kernels::CopyRows copy{sets, share, places * share};
      const std::int64_t reach = (sets - 1) * copy.from_stride + share;
      copy.from = {static_cast<const float*>(input) + place * share, DType::f32, reach};
      copy.to = by_place_.out(place * sets * share, sets * share);
      kernels::run(copy, where_);
    }
    near_->run(by_place_.in(), sum_.out());
    far_->run(sum_.in(), {output, DType::f32, share});
    if (state_ != nullptr) ++state_->calls;
  }

 private:
  CompressionState* const state_;
  const std::unique_ptr<CodeExchange> near_;
  const std::unique_ptr<CodeExchange> far_;
  const kernels::Context where_;
  const Tensor by_place_;  // the input, with shares in the order of (position, set)
  const Tensor sum_;       // over the neighbours, of the shares of this position
};

// For weights: ZeRO++'s qwZ (Wang et al. 2023, section 3.1). All ranks get the same values, including the owner of a
// share.
class CodesAllGather final : public collectives::Collective {
 public:
  CodesAllGather(const WeightGather& wanted, const Shares& shares, std::unique_ptr<collectives::Collective> inner,
                 Memory& memory, const kernels::Context& where)
      : wanted_(wanted), inner_(std::move(inner)), messages_(wanted.way, shares, wanted.num_ranks, memory, where) {}

  void run(const void* input, void* output) override {
    messages_.encode(wanted_.rank, {input, wanted_.dtype, wanted_.elems});
    inner_->run(messages_.message(wanted_.rank), messages_.data());
    const auto stride = static_cast<std::int64_t>(core::size_of(wanted_.dtype)) * wanted_.elems;
    for (int rank = 0; rank < wanted_.num_ranks; ++rank) {
      messages_.decode(rank, 0, {static_cast<std::byte*>(output) + stride * rank, wanted_.dtype, wanted_.elems});
    }
  }

 private:
  const WeightGather wanted_;
  const std::unique_ptr<collectives::Collective> inner_;  // all-gather of messages, in place
  const CodeMessages messages_;
};

collectives::Operation of_messages(collectives::Kind kind, const Shares& shares) {
  collectives::Operation operation;
  operation.dtype = DType::i8;
  operation.count = shares.message_bytes();
  operation.kind = kind;
  operation.in_place = kind == collectives::Kind::all_gather;
  return operation;
}

}  // namespace

backends::Prepared prepare_codes(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                 const kernels::Context& where) {
  const Shares shares(workload::code_shape(reduction.compression.way), reduction.elems, reduction.num_ranks);
  backends::Prepared exchange = prepare(of_messages(collectives::Kind::all_to_all, shares), "auto");
  backends::Prepared gather = prepare(of_messages(collectives::Kind::all_gather, shares), "auto");
  const std::string label =
      exchange.algorithm + "+" + gather.algorithm + "+" + std::string(format_of(reduction.compression.way).name);
  auto collective = std::make_unique<CodesAllReduce>(reduction, shares, std::move(exchange.collective),
                                                     std::move(gather.collective), memory, where);
  return {std::move(collective), label, gather.executor, std::nullopt};
}

backends::Prepared prepare_reduce_scatter(const GradientReduction& reduction, const PrepareCollective& prepare,
                                          Memory& memory, const kernels::Context& where) {
  const Shares shares =
      Shares::even(workload::code_shape(reduction.compression.way), reduction.elems, reduction.num_ranks);
  backends::Prepared prepared = prepare(of_messages(collectives::Kind::all_to_all, shares), "auto");
  prepared.algorithm += "+" + std::string(format_of(reduction.compression.way).name);
  prepared.collective =
      std::make_unique<CodesReduceScatter>(reduction, shares, std::move(prepared.collective), memory, where);
  prepared.plan.reset();
  return prepared;
}

backends::Prepared prepare_two_hop_scatter(const GradientReduction& reduction, const TwoHopCollectives& places,
                                           Memory& memory, const kernels::Context& where) {
  backends::Prepared prepared;
  const auto exchange_of = [&](std::int64_t elems, int ranks, int rank, const PrepareCollective& prepare) {
    GradientReduction hop = reduction;
    hop.elems = elems;
    hop.num_ranks = ranks;
    hop.rank = rank;
    const Shares shares = Shares::even(workload::code_shape(hop.compression.way), elems, ranks);
    backends::Prepared exchange = prepare(of_messages(collectives::Kind::all_to_all, shares), "auto");
    prepared.algorithm += exchange.algorithm + "+";
    prepared.executor = exchange.executor;
    return std::make_unique<CodeExchange>(hop, shares, std::move(exchange.collective), memory, where);
  };
  const int near = places.near_ranks;
  auto first = exchange_of(reduction.elems, near, reduction.rank % near, places.near);
  auto second = exchange_of(reduction.elems / near, reduction.num_ranks / near, reduction.rank / near, places.far);
  prepared.algorithm += std::string(format_of(reduction.compression.way).name);
  prepared.collective = std::make_unique<TwoHopScatter>(reduction, std::move(first), std::move(second), memory, where);
  return prepared;
}

backends::Prepared prepare_weight_gather(const WeightGather& wanted, const PrepareCollective& prepare, Memory& memory,
                                         const kernels::Context& where) {
  const Shares shares =
      Shares::even(workload::code_shape(wanted.way), wanted.elems * wanted.num_ranks, wanted.num_ranks);
  backends::Prepared prepared = prepare(of_messages(collectives::Kind::all_gather, shares), "auto");
  prepared.algorithm += "+" + std::string(format_of(wanted.way).name);
  prepared.collective = std::make_unique<CodesAllGather>(wanted, shares, std::move(prepared.collective), memory, where);
  prepared.plan.reset();
  return prepared;
}

}  // namespace lockstep::parallel
