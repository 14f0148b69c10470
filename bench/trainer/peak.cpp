#include "bench/trainer/peak.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "core/device_cpu.h"
#include "core/device_cuda.h"
#include "core/wait.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/device_memory.h"
#include "trainer/train/rank_setup.h"

namespace lockstep::mini_train {
namespace {

// A product of square matrices with the implementation that is fastest for the shape on this machine.
class SquareProduct {
 public:
  SquareProduct(core::DType dtype, std::int64_t side, parallel::Memory& memory, const kernels::Context& where)
      : side_(side),
        x_(memory.make_zeroed(parallel::MemoryKind::buffers, dtype, side * side)),
        w_(memory.make_zeroed(parallel::MemoryKind::buffers, dtype, side * side)),
        y_(memory.make_zeroed(parallel::MemoryKind::buffers, dtype, side * side)),
        where_(&where) {}

  double flops() const { return 2.0 * static_cast<double>(side_ * side_ * side_); }
  double run_s() {
    kernels::GemmForward product{.shape = {side_, side_, side_}};
    product.x = x_.in();
    product.w = w_.in();
    product.y = y_.out();
    const auto start = core::Clock::now();
    kernels::run(product, *where_);
    parallel::finish(*where_);
    return core::us_between(start, core::Clock::now()) * 1e-6;
  }

 private:
  std::int64_t side_;
  parallel::Tensor x_;
  parallel::Tensor w_;
  parallel::Tensor y_;
  const kernels::Context* where_;
};

}  // namespace

double best_flops_a_s(std::span<const TimedWork> works, int runs, std::chrono::nanoseconds span) {
  double best = 0;
  for (const TimedWork& work : works) {
    const core::Deadline enough = core::Deadline::after(span / static_cast<std::int64_t>(works.size()));
    for (int run = 0; run < runs || !enough.passed(); ++run) best = std::max(best, work.flops / work.run_s());
  }
  return best;
}

namespace {

constexpr int kRuns = 8;  // the first runs touch memory and choose implementations

double peak_of_products(core::DType dtype, std::span<const std::int64_t> sides, core::Device& device,
                        const kernels::Context& where) {
  constexpr auto kSpan = std::chrono::milliseconds(800);  // long enough for a quiet moment on a busy machine
  parallel::Memory memory(device);
  std::vector<SquareProduct> products;
  for (const std::int64_t side : sides) products.emplace_back(dtype, side, memory, where);
  std::vector<TimedWork> works;
  for (SquareProduct& product : products) {
    works.push_back({product.flops(), [&product] { return product.run_s(); }});
  }
  return best_flops_a_s(works, kRuns, kSpan);
}

}  // namespace

double measured_peak_flops(core::DType dtype, int threads) {
  constexpr std::array<std::int64_t, 4> kSides{128, 256, 512, 1024};
  const auto device = core::make_cpu_device();
  kernels::ThreadPool pool(threads);
  return peak_of_products(dtype, kSides, *device, kernels::Context(pool));
}

double measured_cuda_peak_flops(core::DType dtype, int device) {
  constexpr std::array<std::int64_t, 3> kSides{2048, 4096, 8192};
  constexpr int kRank = 0;
  const auto gpu = core::make_cuda_device(device, kRank);
  const auto stream = gpu->make_stream();
  const auto context = trainer::make_cuda_context(*gpu, *stream, kRank);
  return peak_of_products(dtype, kSides, *gpu, kernels::Context(*context));
}

}  // namespace lockstep::mini_train
