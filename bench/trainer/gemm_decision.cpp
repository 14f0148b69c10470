#include "bench/trainer/gemm_decision.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "collectives/transports/mpi_transport.h"
#include "core/error.h"
#include "trainer/train/resume.h"

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

}  // namespace lockstep::mini_train
