#include "bench/context/seqpar.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "bench/step/layer_part.h"
#include "workload/context_layer.h"

namespace lockstep::context_bench {
namespace {

using parallel::ContextLayer;
using step_bench::LayerBlock;
using step_bench::PartSite;

ContextLayer with_rank(ContextLayer layer, std::int32_t rank) {
  layer.rank = rank;
  return layer;
}

// The attention of one rank.
class ContextPart final : public step_bench::LayerPart {
 public:
  ContextPart(const ContextLayer& layer, const Whole& whole, PartSite& site)
      : ContextPart(with_rank(layer, site.index()), site, whole) {}

  void begin(Mode mode) override {
    LayerPart::begin(mode);
    if (is_whole(mode)) site_.memory.restart_peaks();
  }
  void end(Mode mode) override {
    if (is_whole(mode)) {
      const auto activations = static_cast<std::size_t>(parallel::MemoryKind::activations);
      peak_bytes_ = std::max(peak_bytes_, site_.memory.at_peak()[activations]);
    }
    LayerPart::end(mode);
  }

  void check(Mode /*mode*/, Direction direction, step_bench::Findings& findings) override {
    const bool backward = direction == Direction::backward;
    findings.add_difference(difference(rank_, backward ? layer_.dx() : layer_.y(), backward ? whole_.d_qkv : whole_.o));
  }

  // At the peak, without the input, the output's gradient and the input's.
  std::int64_t memory_bytes() const override { return peak_bytes_; }
  std::array<double, 2> formula_bytes() override {
    const workload::ContextBytes listed = workload::bytes_sent(workload::context_list(rank_.shape), rank_);
    return {static_cast<double>(listed.forward), static_cast<double>(listed.backward)};
  }
  std::vector<double> figures() override { return layer_.kernel_us(); }  // for the simulator

 private:
  ContextPart(const ContextLayer& rank, PartSite& site, const Whole& whole)
      : LayerPart(site, block_of(rank), "auto", {rows_of(rank, whole.qkv), rows_of(rank, whole.d_o)}),
        rank_(rank),
        whole_(whole),
        site_(site) {}

  const ContextLayer rank_;
  const Whole& whole_;
  PartSite& site_;
  std::int64_t peak_bytes_ = 0;
};

// Time with the link minus time with one that takes no time.
std::array<double, 2> simulated_exposed_us(const ContextLayer& layer, const step_bench::PartResult& part,
                                           const transports::LinkSpec& link) {
  std::array<double, 2> exposed_us = {};
  for (const Direction direction : step_bench::kDirections) {
    exposed_us[static_cast<std::size_t>(direction)] =
        simulated_us(layer, direction, part.figures, link) - simulated_us(layer, direction, part.figures, {});
  }
  return exposed_us;
}

}  // namespace

std::vector<double> Result::kernels_us() const {
  const auto rounds = part.times.of_ranks(Mode::kernels);
  std::vector<double> medians;
  for (std::size_t r = 0; r < part.ranks.size(); ++r) {
    std::vector<double> us;
    for (const auto& of_rank : rounds) us.push_back(of_rank[r].us);
    medians.push_back(core::median(us));
  }
  return medians;
}

core::Estimate Result::hidden() const {
  std::vector<std::vector<double>> rounds{part.times.both(Mode::overlapped), part.times.both(Mode::exchanges)};
  const std::vector<double> kernels = part.times.both(Mode::kernels);
  for (std::size_t i = 0; i < kernels.size(); ++i) rounds[0][i] -= kernels[i];
  return core::estimate(rounds, [](auto medians) { return medians[1] > 0 ? 1 - medians[0] / medians[1] : 1; })
      .within(0, 1);
}

double Result::simulated_hidden() const {
  const double alone_us = part.times.median_us(Mode::exchanges);
  return alone_us > 0 ? std::clamp(1 - (simulated_exposed_us[0] + simulated_exposed_us[1]) / alone_us, 0.0, 1.0) : 1;
}

double Result::load() const {
  const std::vector<double> us = kernels_us();
  const double mean = std::accumulate(us.begin(), us.end(), 0.0) / static_cast<double>(us.size());
  return *std::max_element(us.begin(), us.end()) / mean;
}

std::string Result::wrong() const {
  if (!(part.worst() <= allowed_difference)) {
    return fmt::format("a result differs from one rank's by {:.2g} of the largest element; allowed: {:.2g}",
                       part.worst(), allowed_difference);
  }
  for (const Direction direction : step_bench::kDirections) {
    const double sent = part.most_sent_bytes(direction);
    const double listed = part.most_formula_bytes(direction);
    if (std::fabs(sent - listed) > 0.5) {
      return fmt::format("{:.0f} bytes sent {}, but the list has {:.0f}", sent,
                         direction == Direction::forward ? "forward" : "backward", listed);
    }
  }
  return "";
}

Result run_layer(const ContextFlags& flags, const ContextLayer& layer, const Whole& whole) {
  const step_bench::PartRow row{.num_ranks = layer.shape.ranks, .tokens = layer.batch * layer.length};
  Result result{.allowed_difference = allowed_difference(layer)};
  result.part = std::move(run_parts(flags, row, [&](PartSite& site) {
                            step_bench::Parts parts;
                            parts.push_back(std::make_unique<ContextPart>(layer, whole, site));
                            return parts;
                          }).front());
  if (flags.link) result.simulated_exposed_us = simulated_exposed_us(layer, result.part, *flags.link);
  return result;
}

}  // namespace lockstep::context_bench
