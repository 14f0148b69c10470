// Reductions of compressed gradients, with error feedback.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "kernels/base/context.h"
#include "kernels/base/view.h"
#include "parallel/compress/compress.h"
#include "parallel/memory/memory.h"
#include "workload/compression.h"

namespace lockstep::parallel {

// Error feedback: the part of a rank's elements that has not been sent yet, which is added to the elements sent next.

class ErrorFeedback {
 public:
  // [elems] f32 from `memory`, registered with `state`, which determines whether an error is pending. `state` and
  // `where`'s device must outlive this.
  ErrorFeedback(std::int64_t elems, CompressionState& state, Memory& memory, const kernels::Context& where);

  // Adds x [elems] to the pending error; the sum is to be sent now.
  void add(const kernels::In& x);
  const Tensor& owed() const { return owed_; }
  // Subtracts elements from `begin` on that were sent with `times` the values of `sent` [count].
  void take_off(std::int64_t begin, const kernels::In& sent, float times = 1);

 private:
  const CompressionState& state_;
  const kernels::Context where_;
  const Tensor owed_;
  const Tensor piece_;
};

// Encoding and decoding of blocks of f32 elements (workload/compression.h).

struct CodeFormat {
  std::string_view name;
  double most_error;  // per element, relative to the block's largest magnitude
  // x, y: [count] f32; codes and scales have the sizes of CodeShape.
  void (*encode)(const kernels::In& x, std::byte* codes, std::byte* scales, const kernels::Context& where);
  void (*decode)(const std::byte* codes, const std::byte* scales, const kernels::Out& y, const kernels::Context& where);
};

// Returns the format of a compression that sends codes.
const CodeFormat& format_of(workload::CompressionWay way);

// The first half of sums of codes, and all of a reduce-scatter: each rank sends every other rank its share of the
// elements as codes (all-to-all) and sums the received codes of its own share in f32, in rank order. With one hop this
// is ZeRO++'s qgZ: Wang et al. 2023, arXiv:2306.10209, section 3.3.

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

// Constructors of the compressed all-reduces: see workload/compression.h.

backends::Prepared prepare_bf16(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                const kernels::Context& where);
backends::Prepared prepare_codes(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                 const kernels::Context& where);
backends::Prepared prepare_sparse(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                  const kernels::Context& where);
backends::Prepared prepare_random(const GradientReduction& reduction, const PrepareCollective& prepare, Memory& memory,
                                  const kernels::Context& where);
backends::Prepared prepare_low_rank(const GradientReduction& reduction, const PrepareCollective& prepare,
                                    Memory& memory, const kernels::Context& where);

}  // namespace lockstep::parallel
