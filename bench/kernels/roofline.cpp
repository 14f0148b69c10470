#include "bench/kernels/roofline.h"

#include <algorithm>

#include "bench/kernels/operand_sets.h"

namespace lockstep::kernel_bench {
namespace {

const Ceiling* find(const Ceilings& ceilings, const Setting& setting, CeilingKind kind, std::optional<Level> level,
                    std::optional<core::DType> dtype) {
  const auto found = std::find_if(ceilings.begin(), ceilings.end(), [&](const Ceiling& c) {
    return c.kind == kind && c.device == setting.device && c.threads == setting.threads && c.level == level &&
           c.dtype == dtype;
  });
  return found == ceilings.end() ? nullptr : &*found;
}

// Returns the measured stream with the nearest share of writes: none of a read's bytes, 1/3 of a triad's, 1/2 of a
// copy's.
CeilingKind stream_like(double written_share) {
  if (written_share < 1.0 / 6) return CeilingKind::read;
  return written_share < 5.0 / 12 ? CeilingKind::triad : CeilingKind::copy;
}

std::optional<double> memory_us(const Work& work, const Setting& setting, const Ceilings& ceilings,
                                const core::Caches& caches) {
  const bool cold = setting.cache == Cache::cold || setting.device != "cpu";
  const Level level = cold ? Level::memory : level_of(work.footprint_bytes, setting.threads, caches);
  const Ceiling* ceiling = find(ceilings, setting, stream_like(work.written_share), level, std::nullopt);
  if (ceiling == nullptr) ceiling = find(ceilings, setting, CeilingKind::copy, level, std::nullopt);
  if (ceiling == nullptr) return std::nullopt;
  return work.bytes / ceiling->value() / 1e3;
}

// Time at the peak rate measured for this dtype or, if there is none, for f32.
std::optional<double> compute_us(const Work& work, const Setting& setting, const Ceilings& ceilings) {
  double gflops = 0;
  for (core::DType dtype : {work.dtype, core::DType::f32}) {
    for (CeilingKind kind : {CeilingKind::fma, CeilingKind::gemm}) {
      const Ceiling* const ceiling = find(ceilings, setting, kind, std::nullopt, dtype);
      if (ceiling != nullptr) gflops = std::max(gflops, ceiling->value());
    }
  }
  if (gflops == 0) return std::nullopt;
  return work.flops / gflops / 1e3;
}

}  // namespace

Work work_of(const kernels::KernelCase& one) {
  Work work{one.cost.flops, one.cost.bytes, footprint_bytes(one), 0, one.dtype};
  const double most = most_touched_bytes(one);
  double read = 0;
  double written = 0;
  for (const kernels::CaseOperand& operand : one.operands) {
    const double bytes = std::min(static_cast<double>(operand.bytes()), most);
    if (operand.access != kernels::Access::write) read += bytes;
    if (operand.access != kernels::Access::read) written += bytes;
  }
  work.written_share = written / (read + written);
  return work;
}

std::optional<Bound> bound_of(const Work& work, const Setting& setting, const Ceilings& ceilings,
                              const core::Caches& caches) {
  std::optional<Bound> bound;
  const auto at_least = [&](const char* name, std::optional<double> us) {
    if (us && (!bound || *us > bound->us)) bound = Bound{name, *us};
  };
  at_least("memory", memory_us(work, setting, ceilings, caches));
  at_least("compute", compute_us(work, setting, ceilings));
  const Ceiling* const launch = find(ceilings, setting, CeilingKind::launch, std::nullopt, std::nullopt);
  if (launch != nullptr) at_least("launch", launch->value());
  return bound;
}

}  // namespace lockstep::kernel_bench
