#include "trainer/step/train_layout.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "schedules/catalogue.h"

namespace lockstep::trainer {
namespace {

std::string divisors_of(std::int64_t number) {
  std::string text;
  for (std::int64_t d = 1; d <= number && d <= 64; ++d) {
    if (number % d == 0) text += (text.empty() ? "" : " ") + std::to_string(d);
  }
  return text;
}

void check_at_least_one(std::string_view flag, std::int64_t value) {
  if (value >= 1) return;
  throw core::usage_error(std::string(flag) + " is " + std::to_string(value) + "; allowed: at least 1");
}

void check_divides(std::string_view flag, std::int64_t value, std::string_view what, std::int64_t whole) {
  if (whole % value == 0) return;
  throw core::usage_error(std::string(flag) + " is " + std::to_string(value) + ", and " + std::string(what) + " is " +
                          std::to_string(whole) + "; allowed: " + divisors_of(whole));
}

// Schedules whose results differ from plain accumulation, or whose stages have two copies, are simulated only.
void check_schedule(const TrainLayout& layout) {
  if (layout.own_schedule != nullptr) {
    if (layout.own_schedule->num_pipes() == 1) return;
    throw core::usage_error("the schedule " + layout.own_schedule->name + " has " +
                            std::to_string(layout.own_schedule->num_pipes()) + " pipes; allowed: 1");
  }
  const schedules::CatalogueEntry& entry = schedules::entry_named(layout.schedule);
  if (entry.versions != schedules::Versions::one) {
    throw core::usage_error("--schedule is " + layout.schedule +
                            ", which trains on old weights; allowed: a schedule with one version of them (simulate and "
                            "pipeline_perf run the others)");
  }
  if (entry.weight_copies > 1) {
    throw core::usage_error("--schedule is " + layout.schedule +
                            ", which keeps two copies of the model; allowed: a schedule with one pipe (pipeline_perf "
                            "runs the others)");
  }
  if (!entry.takes_chunks && layout.chunks != 1) {
    throw core::usage_error("--chunks is " + std::to_string(layout.chunks) + ", and schedule " + layout.schedule +
                            " has its own number of stages a rank; allowed: 1");
  }
  const std::string misfit = schedules::misfit_of(entry, {layout.pp, layout.microbatches, layout.chunks});
  if (!misfit.empty()) throw core::usage_error("--schedule " + layout.schedule + ": " + misfit);
}

}  // namespace

schedules::Schedule schedule_of(const TrainLayout& layout) {
  if (layout.own_schedule != nullptr) return *layout.own_schedule;
  return schedules::make_schedule(layout.schedule, {layout.pp, layout.microbatches, layout.chunks});
}

Coordinates coordinates_of(const TrainLayout& layout, std::int32_t rank) {
  return {rank % layout.tp, rank / layout.tp % layout.dp, rank / (layout.tp * layout.dp)};
}

std::int32_t rank_at(const TrainLayout& layout, const Coordinates& at) {
  return at.tp + layout.tp * (at.dp + layout.dp * at.pp);
}

void check_layout(const TrainLayout& layout, const GptConfig& config, std::int64_t batch, std::int64_t length) {
  check_at_least_one("--dp", layout.dp);
  check_at_least_one("--tp", layout.tp);
  check_at_least_one("--pp", layout.pp);
  check_at_least_one("--microbatches", layout.microbatches);
  check_at_least_one("--chunks", layout.chunks);
  check_at_least_one("--batch", batch);
  if (layout.zero < 0 || layout.zero > 3) {
    throw core::usage_error("--zero is " + std::to_string(layout.zero) + "; allowed: 0 1 2 3");
  }
  if (length < 1 || length > config.length) {
    throw core::usage_error("--length is " + std::to_string(length) + "; allowed: 1 to " +
                            std::to_string(config.length) + ", the positions of " + config.name);
  }
  check_divides("--tp", layout.tp, "the number of heads", config.heads);
  check_divides("--tp", layout.tp, "four times the hidden size", 4 * config.hidden);
  if (layout.sequence_parallel)
    check_divides("--tp with --sequence-parallel", layout.tp, "batch x length", batch * length);
  check_schedule(layout);
  const auto stages = schedule_of(layout).num_stages();
  if (config.layers < stages) {
    throw core::usage_error("--pp " + std::to_string(layout.pp) + " with schedule " + layout.schedule + " has " +
                            std::to_string(stages) + " stages, and " + config.name + " has " +
                            std::to_string(config.layers) + " layers; allowed: at most one stage a layer");
  }
}

}  // namespace lockstep::trainer
