// The first half of sums of codes, and all of a reduce-scatter: each rank sends each other its share of the elements as
// codes (all-to-all), and sums what came of its own share in f32, in the order of ranks. ZeRO++'s qgZ with one hop:
// Wang et al. 2023, arXiv:2306.10209, section 3.3.
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
  // x: the elements in use of a rank's share.
  void encode(int rank, const kernels::In& x) const;
  // Elements of a rank's share from `begin` on, which is at a whole block.
  void decode(int rank, std::int64_t begin, const kernels::Out& y) const;
  // Takes a rank's message off what is owed, where its first element is at `begin`.
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

  // The sum, or average, of all ranks' inputs in the own share: `sum` [elements in use].
  void run(const kernels::In& input, const kernels::Out& sum);
  const workload::Shares& shares() const { return shares_; }
  const CodeMessages& sent() const { return sent_; }  // free for others after run()

 private:
  const int num_ranks_;
  const std::int64_t average_over_;                          // 0: not at all
  const std::unique_ptr<collectives::Collective> exchange_;  // all-to-all of messages
  const kernels::Context where_;
  const workload::Shares shares_;
  const CodeMessages sent_;
  const CodeMessages received_;
  const Tensor pieces_;  // [rank][kPieceElems]
  std::optional<ErrorFeedback> owed_;
};

}  // namespace lockstep::parallel
