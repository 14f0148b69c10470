#include "parallel/compress/code_exchange.h"

#include <algorithm>
#include <utility>

#include "kernels/reduce/reduction.h"

namespace lockstep::parallel {
namespace {

using core::DType;
using workload::Shares;

constexpr std::int64_t kPieceElems = 8192;  // over all ranks, fits a core's cache; whole blocks

}  // namespace

CodeMessages::CodeMessages(CompressionWay way, const Shares& shares, int ranks, Memory& memory,
                           const kernels::Context& where)
    : format_(format_of(way)),
      shares_(shares),
      where_(where),
      messages_(memory.make_zeroed(MemoryKind::buffers, DType::i8, shares_.message_bytes() * ranks)),
      piece_(memory.make(MemoryKind::buffers, DType::f32, std::min(shares_.share, kPieceElems))) {}

void* CodeMessages::message(int rank) const {
  return messages_.as<std::byte>() + shares_.message_bytes() * rank;
}

void CodeMessages::encode(int rank, const kernels::In& x) const {
  if (x.elems == 0) return;
  auto* const codes = static_cast<std::byte*>(message(rank));
  format_.encode(x, codes, codes + shares_.shape.scales_at(shares_.share), where_);
}

void CodeMessages::decode(int rank, std::int64_t begin, const kernels::Out& y) const {
  if (y.elems == 0) return;
  const auto* const codes = static_cast<const std::byte*>(message(rank));
  const std::byte* const scales = codes + shares_.shape.scales_at(shares_.share) +
                                  sizeof(float) * static_cast<std::size_t>(shares_.shape.blocks(begin));
  format_.decode(codes + shares_.shape.code_bytes(begin), scales, y, where_);
}

void CodeMessages::take_off(int rank, std::int64_t begin, std::int64_t elems, ErrorFeedback& owed) const {
  for (std::int64_t at = 0; at < elems; at += kPieceElems) {
    const std::int64_t count = std::min(kPieceElems, elems - at);
    decode(rank, at, piece_.out(0, count));
    owed.take_off(begin + at, piece_.in(0, count));
  }
}

CodeExchange::CodeExchange(const GradientReduction& reduction, const Shares& shares,
                           std::unique_ptr<collectives::Collective> exchange, Memory& memory,
                           const kernels::Context& where)
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

void CodeExchange::run(const kernels::In& input, const kernels::Out& sum) {
  if (owed_) owed_->add(input);
  const kernels::In x = owed_ ? owed_->owed().in() : input;
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

}  // namespace lockstep::parallel
