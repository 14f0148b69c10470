// Runs attention on its context-parallel ranks: timed in all ways of running it in every round, and checked in every
// round.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/context/flags.h"
#include "bench/context/passes.h"
#include "bench/tp_linear/pass.h"
#include "core/record.h"
#include "core/statistics.h"

namespace lockstep::context_bench {

enum class Direction : std::uint8_t { forward, backward };
using tp_linear::Spent;
using Form = tp_linear::Way;  // how a pass is run; `way` is the form of context parallelism
inline constexpr int kNumForms = tp_linear::kNumWays;

struct Result {
  // [form][direction], the slowest rank's time in each round.
  std::array<std::array<std::vector<double>, 2>, kNumForms> samples_us = {};
  std::array<std::array<std::vector<Spent>, 2>, kNumForms> spent_us = {};
  std::vector<double> kernels_us;           // medians per rank, forward and backward
  std::array<double, 2> sent_bytes = {};    // [direction], on the rank that sends most, per pass: counted in the plans
  std::array<double, 2> listed_bytes = {};  // likewise: from the list
  // [direction], simulated time that overlapped exchanges add to kernels: kernels as measured, exchanges on the
  // emulated link; 0 without one.
  std::array<double, 2> simulated_exposed_us = {};
  std::int64_t peak_bytes = 0;  // on the rank that holds most, without its input and the output's gradient
  double worst_difference = 0;  // over all rounds and ranks, relative to the largest element
  double allowed_difference = 0;
  std::int64_t checked_passes = 0;
  // Energy of a forward and a backward with overlapped exchanges. The text is one line, also without a counter. Only on
  // rank 0.
  std::optional<core::EnergyRecord> energy = {};
  std::string energy_text = {};

  const std::vector<double>& samples(Form form, Direction direction) const {
    return samples_us[static_cast<std::size_t>(form)][static_cast<std::size_t>(direction)];
  }
  double median_us(Form form, Direction direction) const { return core::median(samples(form, direction)); }
  std::vector<double> exposed(Form form, Direction direction) const;
  double exposed_us(Direction direction) const { return core::median(exposed(Form::beside, direction)); }
  // Share of the communication time that kernels hide, forward and backward; 1 if there is almost none.
  double hidden() const;
  double simulated_hidden() const;  // the same, by the simulator
  double load() const;              // the slowest rank's kernels over the mean
  std::string wrong() const;        // empty: nothing is wrong

 private:
  double hidden_of(double exposed_us) const;
};

// Under mpirun all ranks call it, and all have the result.
Result run_layer(const ContextFlags& flags, const parallel::ContextLayer& layer, const Whole& whole);

}  // namespace lockstep::context_bench
