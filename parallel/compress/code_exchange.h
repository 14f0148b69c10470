// The first half of sums of codes, and all of a reduce-scatter: each rank sends every other rank its share of the
// elements as codes (all-to-all) and sums the received codes of its own share in f32, in rank order. With one hop this
// is ZeRO++'s qgZ: Wang et al. 2023, arXiv:2306.10209, section 3.3.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>

#include "parallel/compress/code_format.h"
#include "parallel/compress/compress.h"
#include "parallel/compress/error_feedback.h"

namespace lockstep::parallel {

// Messages of all ranks, one after the other: codes, then scales.
class CodeMessages {
 public:
  CodeMessages(CompressionWay way, const workload::Shares& shares, int ranks, Memory& memory,
               const kernels::Context& where);

  void* message(int rank) const;
  void* data() const { return messages_.data(); }
  // x: the used elements of a rank's share.
  void encode(int rank, const kernels::In& x) const;
  // Decodes elements of a rank's share from `begin` on, which is the start of a block.
  void decode(int rank, std::int64_t begin, const kernels::Out& y) const;
  // Subtracts a rank's message, whose first element is at `begin`, from the pending error.
  void take_off(int rank, std::int64_t begin, std::int64_t elems, ErrorFeedback& owed) const;

 private:
  const CodeFormat& format_;
  const workload::Shares shares_;
  const kernels::Context where_;
  const Tensor messages_;
  const Tensor piece_;
};

class CodeExchange {
 public:
  CodeExchange(const GradientReduction& reduction, const workload::Shares& shares,
               std::unique_ptr<collectives::Collective> exchange, Memory& memory, const kernels::Context& where);

  // Computes the sum, or average, of all ranks' inputs in this rank's share: `sum` [used elements].
  void run(const kernels::In& input, const kernels::Out& sum);
  const workload::Shares& shares() const { return shares_; }
  const CodeMessages& sent() const { return sent_; }  // may be reused after run()

 private:
  const int num_ranks_;
  const std::int64_t average_over_;                          // 0: no averaging
  const std::unique_ptr<collectives::Collective> exchange_;  // all-to-all of messages
  const kernels::Context where_;
  const workload::Shares shares_;
  const CodeMessages sent_;
  const CodeMessages received_;
  const Tensor pieces_;  // [rank][kPieceElems]
  std::optional<ErrorFeedback> owed_;
};

}  // namespace lockstep::parallel
