#include "bench/kernels/device_ceilings.h"

#include "kernels/fp8/fp8_reference.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gelu/gelu_reference.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_reference.h"

namespace lockstep::kernel_bench {
namespace {

constexpr int kSamples = 60;

// Returns the mean time of a call in each sample. The first call, which may choose an algorithm or allocate, is
// excluded.
std::vector<double> call_times_us(TimedDevice& timed, Arena& arena, const kernels::KernelCase& one,
                                  std::int64_t calls) {
  OperandSets sets(arena, one, short_patterns(one, /*seed=*/1), 0);
  const auto call = [&] { one.run(sets.next(), timed.context()); };
  call();
  timed.wait();
  std::vector<double> times_us;
  for (int k = 0; k < kSamples; ++k) times_us.push_back(timed.us_of(calls, call) / static_cast<double>(calls));
  return times_us;
}

kernels::KernelCase square_product(core::DType dtype, std::int64_t columns) {
  if (dtype != core::DType::f8e4m3) {
    return kernels::make_case(kernels::GemmForward{.shape = {columns, columns, columns}},
                              {.shape = "square", .dtype = dtype});
  }
  const kernels::GemmFp8 product{.shape = {.m = columns, .n = columns, .k = columns}};
  return kernels::make_shaped_case(kernels::shaped(product, core::DType::bf16), {.shape = "square", .dtype = dtype});
}

}  // namespace

Ceiling gemm_ceiling(TimedDevice& timed, Arena& arena, const std::string& device, int threads, core::DType dtype,
                     std::int64_t columns) {
  const kernels::KernelCase one = square_product(dtype, columns);
  Ceiling ceiling{CeilingKind::gemm, device, threads, std::nullopt, dtype, {}};
  for (double us : call_times_us(timed, arena, one, 1)) ceiling.samples.push_back(one.cost.flops / us / 1e3);
  return ceiling;
}

Ceiling launch_ceiling(TimedDevice& timed, Arena& arena, const std::string& device) {
  const kernels::KernelCase one = kernels::make_case(kernels::GeluForward{.count = 1}, {.shape = "N1"});
  constexpr std::int64_t kCalls = 200;
  Ceiling ceiling{CeilingKind::launch, device, 1, std::nullopt, std::nullopt, {}};
  ceiling.samples = call_times_us(timed, arena, one, kCalls);
  return ceiling;
}

}  // namespace lockstep::kernel_bench
