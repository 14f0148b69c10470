// Times a layout's step: as it trains, one piece at a time, and chosen pieces concurrently.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "bench/scaling/prices.h"
#include "bench/scaling/slowdowns.h"
#include "core/record.h"
#include "schedules/step/step.h"
#include "schedules/step/timeline.h"
#include "trainer/data/corpus.h"
#include "trainer/train/options.h"

namespace lockstep::scaling {

struct Effort {
  int rounds = 5;        // maximum; each round has one step of each kind
  double seconds = 1e9;  // no further round begins after that, but the first always runs
};

struct LayoutTimes {
  schedules::Step step;
  std::vector<double> samples_ms;            // steps as they train, on the slowest rank
  schedules::StepTimeline measured;          // the step with the median time; communication while its bytes move
  std::optional<core::EnergyRecord> energy;  // energy of steps as they train
  std::string energy_text;                   // one line, also if nothing was measured
  double around_ms = 0;                      // time of this step outside of its tasks: tokens, zeroed gradients
  Prices prices;
  simulator::Simulation isolated;
  simulator::Simulation contended;
  Slowdowns slowdowns;
};

// `options` must have been checked; their number of steps is ignored. Steps of the different kinds alternate, after a
// warm-up.
LayoutTimes time_layout(const trainer::TrainOptions& options, const trainer::Corpus& corpus, const Effort& effort);

// Milliseconds of this many steps as they train, after a warm-up.
std::vector<double> time_steps(const trainer::TrainOptions& options, const trainer::Corpus& corpus, int steps);

}  // namespace lockstep::scaling
