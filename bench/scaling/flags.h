// The command line of scaling.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/place/place.h"
#include "bench/program/command_line.h"
#include "bench/program/program.h"
#include "bench/scaling/measure.h"
#include "trainer/train/options.h"

namespace lockstep::scaling {

enum class Mode : std::uint8_t { weak, strong };
inline const char* name_of(Mode mode) {
  return mode == Mode::weak ? "weak" : "strong";
}

struct ScalingFlags : program::Invocation {
  std::vector<Mode> modes{Mode::weak};
  std::vector<std::string> layouts;      // "dp=2,zero=1"; empty: default_layouts()
  std::vector<std::string> simulated;    // layouts that are only simulated
  std::vector<std::string> train_words;  // flags of mini_train that all layouts share
  program::PlaceFlags place;
  std::int64_t batch = 8;  // sequences per step: of one rank (weak), of all (strong)
  Effort effort;
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
ScalingFlags parse_scaling_flags(int argc, const char* const* argv);

// Some layouts of each kind for this machine's cores.
std::vector<std::string> default_layouts();

// One layout's options: mini_train's flags, the layout as workload::parse_layout() reads it (in --dtype, unless it has
// one), and a batch such that the sequences of a step grow with the ranks or stay constant. Throws a usage Error that
// names the layout and the problem.
trainer::TrainOptions options_of(const ScalingFlags& flags, const std::string& layout, Mode mode);

// The layout from which a simulated one is made: two replicas with the same work per rank.
trainer::TrainOptions two_replicas_of(trainer::TrainOptions many);

}  // namespace lockstep::scaling
