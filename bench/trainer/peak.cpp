#include "bench/trainer/peak.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/device_cpu.h"
#include "core/wait.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "parallel/memory/memory.h"

namespace lockstep::mini_train {

double measured_peak_flops(core::DType dtype, int threads) {
  constexpr std::int64_t kSide = 1024;
  constexpr int kRuns = 8;                                // at least; the first ones touch memory
  constexpr auto kSpan = std::chrono::milliseconds(400);  // at least: so that busy machines have a quiet moment
  const auto device = core::make_cpu_device();
  parallel::Memory memory(*device);
  kernels::ThreadPool pool(threads);
  const kernels::Context where(pool);
  const auto x = memory.make_zeroed(parallel::MemoryKind::buffers, dtype, kSide * kSide);
  const auto w = memory.make_zeroed(parallel::MemoryKind::buffers, dtype, kSide * kSide);
  const auto y = memory.make(parallel::MemoryKind::buffers, dtype, kSide * kSide);
  kernels::GemmForward product{.shape = {kSide, kSide, kSide}};
  product.x = x.in();
  product.w = w.in();
  product.y = y.out();
  double best_s = std::numeric_limits<double>::infinity();
  const core::Deadline enough = core::Deadline::after(kSpan);
  for (int run = 0; run < kRuns || !enough.passed(); ++run) {
    const auto start = core::Clock::now();
    kernels::run(product, where);
    best_s = std::min(best_s, std::chrono::duration<double>(core::Clock::now() - start).count());
  }
  return 2.0 * kSide * kSide * kSide / best_s;
}

}  // namespace lockstep::mini_train
