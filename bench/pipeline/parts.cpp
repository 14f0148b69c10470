#include "bench/pipeline/parts.h"

namespace lockstep::pipeline {
namespace {

using schedules::Breakdown;
using schedules::Lane;

std::int64_t exposed(const Breakdown& parts, Lane lane) {
  return parts.exposed_ps[static_cast<std::size_t>(lane)];
}

}  // namespace

std::vector<std::pair<std::string, std::int64_t>> named_parts(const Breakdown& parts) {
  return {{"forward", parts.forward_ps},
          {"backward", parts.backward_ps},
          {"recompute", parts.recompute_ps},
          {"optimizer", parts.optimizer_ps},
          {"exposed_tensor", exposed(parts, Lane::tensor)},
          {"exposed_pipeline", exposed(parts, Lane::send) + exposed(parts, Lane::receive)},
          {"exposed_gather", exposed(parts, Lane::gather)},
          {"exposed_reduce", parts.exposed_reductions_ps()},
          {"exposed_copy", exposed(parts, Lane::copy) + exposed(parts, Lane::load) + exposed(parts, Lane::host)},
          {"bubble", parts.bubble_ps}};
}

std::vector<std::pair<std::string, double>> mean_parts_ms(const std::vector<Breakdown>& ranks) {
  std::vector<std::pair<std::string, double>> mean;
  for (const Breakdown& rank : ranks) {
    const auto parts = named_parts(rank);
    mean.resize(parts.size());
    for (std::size_t i = 0; i < parts.size(); ++i) {
      mean[i].first = parts[i].first;
      mean[i].second += static_cast<double>(parts[i].second) / 1e9 / static_cast<double>(ranks.size());
    }
  }
  return mean;
}

}  // namespace lockstep::pipeline
