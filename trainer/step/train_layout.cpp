#include "trainer/step/train_layout.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "schedules/catalogue.h"
#include "schedules/placement.h"

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

void check_shards(const TrainLayout& layout) {
  if (layout.shard_ranks == 0) return;
  check_at_least_one("--shard-ranks", layout.shard_ranks);
  if (layout.zero == 0) {
    throw core::usage_error("--shard-ranks is " + std::to_string(layout.shard_ranks) +
                            ", and --zero is 0, which shares nothing out; allowed: with --zero 1 2 3");
  }
  check_divides("--shard-ranks", layout.shard_ranks, "--dp", layout.dp);
}

void check_pipes(const schedules::Schedule& own) {
  if (own.num_pipes() == 1) return;
  const bool opposite = own.num_ranks() % 2 == 0 && own.rank_of_stage == schedules::opposite_placement(own.num_ranks());
  if (opposite) return;
  throw core::usage_error(
      "the schedule " + own.name + " has " + std::to_string(own.num_pipes()) + " pipes on " +
      std::to_string(own.num_ranks()) +
      " ranks; allowed: one, or two on an even number of ranks, from the first to the last and from "
      "the last to the first");
}

// Schedules whose results differ from plain accumulation are simulated only.
void check_schedule(const TrainLayout& layout) {
  if (layout.own_schedule != nullptr) return check_pipes(*layout.own_schedule);
  const schedules::CatalogueEntry& entry = schedules::entry_named(layout.schedule);
  if (entry.versions != schedules::Versions::one) {
    throw core::usage_error("--schedule is " + layout.schedule +
                            ", which trains on old weights; allowed: a schedule with one version of them (simulate and "
                            "pipeline_perf run the others)");
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

std::int32_t pipes_of(const TrainLayout& layout) {
  if (layout.own_schedule != nullptr) return layout.own_schedule->num_pipes();
  return schedules::entry_named(layout.schedule).weight_copies;
}

std::int32_t data_ranks_of(const TrainLayout& layout) {
  return layout.dp * pipes_of(layout);
}

std::int32_t data_index_of(const TrainLayout& layout, const Coordinates& at) {
  const bool second_half = pipes_of(layout) > 1 && at.pp >= layout.pp / 2;
  return second_half ? layout.dp + at.dp : at.dp;
}

Coordinates data_rank_at(const TrainLayout& layout, const Coordinates& at, std::int32_t index) {
  const bool stays = index / layout.dp == data_index_of(layout, at) / layout.dp;
  return {at.tp, index % layout.dp, stays ? at.pp : layout.pp - 1 - at.pp};
}

std::int32_t zero_of(const TrainLayout& layout) {
  const std::int32_t share = layout.shard_ranks > 0 ? layout.shard_ranks : data_ranks_of(layout);
  return share > 1 ? layout.zero : 0;
}

std::int32_t shards_of(const TrainLayout& layout) {
  return zero_of(layout) > 0 && layout.shard_ranks > 0 ? layout.shard_ranks : data_ranks_of(layout);
}

std::int32_t replicas_of(const TrainLayout& layout) {
  return data_ranks_of(layout) / shards_of(layout);
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
  check_shards(layout);
  if (length < 1 || length > config.length) {
    throw core::usage_error("--length is " + std::to_string(length) + "; allowed: 1 to " +
                            std::to_string(config.length) + ", the positions of " + config.name);
  }
  check_divides("--tp", layout.tp, "the number of heads", config.heads);
  check_divides("--tp", layout.tp, "four times the hidden size", 4 * config.hidden);
  if (layout.sequence_parallel)
    check_divides("--tp with --sequence-parallel", layout.tp, "batch x length", batch * length);
  check_schedule(layout);
  const auto stages = schedule_of(layout).stages_a_pipe;
  if (config.layers < stages) {
    throw core::usage_error("--pp " + std::to_string(layout.pp) + " with schedule " + layout.schedule + " has " +
                            std::to_string(stages) + " stages, and " + config.name + " has " +
                            std::to_string(config.layers) + " layers; allowed: at most one stage a layer");
  }
}

}  // namespace lockstep::trainer
