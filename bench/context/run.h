// Attention on its context ranks, timed in turn in all ways of running it, and checked in every turn.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/context/flags.h"
#include "bench/context/reference.h"
#include "bench/parallel_layers/pass.h"
#include "core/record.h"
#include "core/statistics.h"

namespace lockstep::context_bench {

enum class Direction : std::uint8_t { forward, backward };
using layer_bench::Spent;
using Form = layer_bench::Way;  // how a pass is run; the way is how ranks share the attention
inline constexpr int kNumForms = layer_bench::kNumWays;

struct Result {
  // [form][direction], of each turn the slowest rank's.
  std::array<std::array<std::vector<double>, 2>, kNumForms> samples_us = {};
  std::array<std::array<std::vector<Spent>, 2>, kNumForms> spent_us = {};
  std::vector<double> kernels_us;           // of each rank, forward and backward: median
  std::array<double, 2> sent_bytes = {};    // [direction], of the rank that sends most, in a pass: counted in the plans
  std::array<double, 2> listed_bytes = {};  // likewise: as the list has it
  // [direction], what exchanges beside kernels add to them, as the simulator has it: kernels as they were measured,
  // exchanges on the emulated link; 0 without one.
  std::array<double, 2> simulated_exposed_us = {};
  std::int64_t peak_bytes = 0;  // of the rank that holds most, beside its input and the output's gradient
  double worst_difference = 0;  // of all turns and ranks, of the largest element
  double allowed_difference = 0;
  std::int64_t checked_passes = 0;
  // Energy of a forward and a backward with exchanges beside kernels. The text is one line, also without a counter.
  // Rank 0 has it.
  std::optional<core::EnergyRecord> energy = {};
  std::string energy_text = {};

  const std::vector<double>& samples(Form form, Direction direction) const {
    return samples_us[static_cast<std::size_t>(form)][static_cast<std::size_t>(direction)];
  }
  double median_us(Form form, Direction direction) const { return core::median(samples(form, direction)); }
  std::vector<double> exposed(Form form, Direction direction) const;
  double exposed_us(Direction direction) const { return core::median(exposed(Form::beside, direction)); }
  // Share of the time of communication alone that kernels hide, forward and backward; 1 where there is next to none.
  double hidden() const;
  double simulated_hidden() const;  // likewise, by the simulator
  double load() const;              // the slowest rank's kernels over the mean
  std::string wrong() const;        // empty: nothing

 private:
  double hidden_of(double exposed_us) const;
};

// Under mpirun all ranks call it, and all have the result.
Result run_layer(const ContextFlags& flags, const parallel::ContextLayer& layer, const Whole& whole);

}  // namespace lockstep::context_bench
