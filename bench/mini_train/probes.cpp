#include "bench/mini_train/flags.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "collectives/transports/mpi_transport.h"
#include "core/device.h"
#include "core/device_cuda.h"
#include "core/error.h"
#include "core/wait.h"
#include "kernels/base/context.h"
#include "kernels/base/thread_pool.h"
#include "kernels/gemm/gemm.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/device_memory.h"
#include "trainer/train/rank_steps.h"
#include "trainer/train/train.h"

namespace lockstep::mini_train {
namespace {

using kernels::GemmTime;

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// Returns the largest value over all ranks; `mine` without mpirun.
double largest_of_ranks(transports::World* ranks, double mine) {
  if (ranks == nullptr) return mine;
  const auto all = transports::all_gather_value(*ranks, mine);
  return *std::max_element(all.begin(), all.end());
}

std::vector<std::string> on_all_ranks(transports::World* ranks, core::DType dtype) {
  const std::vector<std::string> mine = kernels::gemm_implementations(dtype);
  std::vector<std::string> names;
  for (const char* const name : kernels::kGemmNames) {
    if (largest_of_ranks(ranks, contains(mine, name) ? 0 : 1) == 0) names.emplace_back(name);
  }
  return names;
}

std::vector<GemmTime> probe_on_all_ranks(transports::World* ranks, const std::vector<std::string>& names,
                                         core::DType dtype, int threads) {
  if (ranks != nullptr) ranks->barrier();
  std::vector<GemmTime> times = kernels::probe_gemms(names, dtype, threads);
  for (GemmTime& time : times) time.seconds = largest_of_ranks(ranks, time.seconds);
  return times;
}

}  // namespace

core::GemmRecord decide_gemm(const GemmQuestion& question) {
  const auto& [flag, dtype, checkpoint, here, probe] = question;
  if (flag == trainer::TrainOptions::kPerShape || contains(here, flag)) return {flag, "flag", {}};
  if (flag != kProbeGemms) {
    throw core::usage_error(fmt::format("--gemm {} is not available on this machine for {}; allowed: {}, {}, {}", flag,
                                        core::short_name_of(dtype), kProbeGemms, trainer::TrainOptions::kPerShape,
                                        fmt::join(here, ", ")));
  }
  if (contains(here, checkpoint)) return {checkpoint, "checkpoint", {}};
  const std::vector<GemmTime> times = probe();
  core::GemmRecord record{kernels::fastest_gemm(times), "probe", {}};
  for (const GemmTime& time : times) {
    if (std::isfinite(time.seconds)) record.probe_us.emplace_back(time.name, time.seconds * 1e6);
  }
  return record;
}

core::GemmRecord decide_gemm(const std::string& flag, const trainer::TrainOptions& options, int threads) {
  const std::unique_ptr<transports::Transport> ranks = options.mpi == nullptr ? nullptr : options.mpi->make_transport();
  const std::vector<std::string> here = on_all_ranks(ranks.get(), options.layout.compute);
  const std::string checkpoint =
      options.resume.empty() ? "" : trainer::gemm_of_checkpoint(options.resume, options.layout.compute);
  const auto probe = [&] { return probe_on_all_ranks(ranks.get(), here, options.layout.compute, threads); };
  return decide_gemm({flag, options.layout.compute, checkpoint, here, probe});
}

std::string gemm_text(const core::GemmRecord& gemm) {
  std::string text = fmt::format("# matrix products: {}", gemm.implementation);
  if (gemm.chosen_by == "flag") return text + " (--gemm)\n";
  if (gemm.chosen_by == "checkpoint") return text + ", as in the run that wrote the checkpoint\n";
  text += ", the fastest in a probe (";
  for (const auto& [name, us] : gemm.probe_us) text += fmt::format("{} {:.0f} us, ", name, us);
  return text + fmt::format("per round); --gemm {} repeats this run's bits\n", gemm.implementation);
}

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
