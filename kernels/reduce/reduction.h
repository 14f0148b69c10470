// The combination of k buffers (reduce.h) as a kernel: checked arguments, on a pool's threads or on CUDA.
// Deterministic: each element is combined in the sources' order, whatever the number of threads. Narrow floats (f16,
// bf16, fp8) are combined in f32 and rounded once; an average divides once, at the end. Integers wrap around, and their
// averages are truncated as in C. max is a < b ? b : a, min is b < a ? b : a, source after source: a NaN in source0 is
// kept, one in a later source is ignored. sum and prod propagate NaN and infinity.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

struct Reduction {
  static constexpr std::array kInPlace{InPlace{"destination", "source0"}};
  std::int64_t count;
  std::int64_t num_sources;
  core::DType dtype;
  core::ReduceOp op = core::ReduceOp::sum;  // avg combines as sum
  std::int64_t average_over = 0;            // above 0: divide the result by this; only with sum and avg
  std::vector<In> sources = {};             // [source][count]
  Out destination = {};                     // [count], may be source0

  std::string_view name() const { return "reduction"; }
  void check_shape() const;
  // Visits operands "source0", "source1", ...; as in bucket.h, arguments that may be changed get the views that they
  // lack.
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit) {
    const auto wanted = static_cast<std::size_t>(self.num_sources);
    if constexpr (!std::is_const_v<Self>) self.sources.resize(wanted);
    for (std::size_t k = 0; k < wanted; ++k) {
      const std::string source = "source" + std::to_string(k);
      if (k < self.sources.size()) {
        visit(source, self.sources[k], self.count, DTypes(self.dtype));
      } else if constexpr (std::is_const_v<Self>) {
        const In missing{};
        visit(source, missing, self.count, DTypes(self.dtype));
      }
    }
    visit("destination", self.destination, self.count, DTypes(self.dtype));
  }
};

// FLOPs per element of floats: num_sources - 1 for sum, avg and prod, and one for a division; otherwise none.
Cost cost_of(const Reduction& args);

void run_cpu(const Reduction& args, ThreadPool& pool);
void run_cuda(const Reduction& args, CudaContext& cuda);

}  // namespace lockstep::kernels
