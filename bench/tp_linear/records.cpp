#include "bench/tp_linear/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "bench/pipeline/records.h"
#include "bench/tp_linear/values.h"

namespace lockstep::tp_linear {
namespace {

constexpr std::array kNamesOfKinds{"products", "other_kernels", "communication"};  // in the order of TaskKind

struct NameOfWay {
  Way way;
  const char* name;
  bool has_both;  // kernels and communication
};
constexpr std::array kWaysOfRecords{
    NameOfWay{Way::kernels, "kernels", false},
    NameOfWay{Way::exchanges, "communication", false},
    NameOfWay{Way::one_by_one, "serial", true},
    NameOfWay{Way::beside, "async", true},
};

core::LayerTimeRecord time_record(const Form& form, const NameOfWay& way, Direction direction) {
  core::LayerTimeRecord time;
  time.direction = direction == Direction::forward ? "forward" : "backward";
  time.way = way.name;
  time.samples_us = form.samples(way.way, direction);
  const Spent& spent = form.median_spent(way.way, direction);
  for (std::size_t k = 0; k < spent.size(); ++k) time.parts_us.emplace_back(kNamesOfKinds[k], spent[k]);
  if (way.has_both) time.exposed_us = form.exposed(way.way, direction);
  return time;
}

core::NamedNumbers sizes_of(const Shape& shape) {
  return {{"batch", static_cast<double>(shape.batch)},
          {"length", static_cast<double>(shape.length)},
          {"hidden", static_cast<double>(shape.hidden)},
          {"heads", static_cast<double>(shape.heads)},
          {"vocabulary", static_cast<double>(shape.vocabulary)}};
}

void add_verdict(core::LayerRecord& record, const Form& form) {
  record.checked_passes = form.checked_passes;
  record.wrong = form.wrong;
  record.unlike = form.unlike;
  if (!form.is_wrong()) return;
  record.status = "wrong";
  record.error = form.wrong != 0 ? fmt::format("{} elements differ from one rank's by more than rounding", form.wrong)
                                 : fmt::format("{:.0f} bytes sent per rank, but the exchanges of the layer need {:.0f}",
                                               record.sent_bytes, record.formula_bytes);
}

}  // namespace

core::RunRecord run_record(const TpLinearFlags& flags) {
  const int most = most_ranks(flags);
  core::RunRecord run =
      pipeline::new_run_record(flags.program, flags.command, pipeline::Mode::real, most * flags.threads);
  run.ranks = most;
  run.seed = kSeed;
  program::add_place(flags.place.device, flags.mpi, most, run);
  if (!flags.link) return run;
  run.basis = "emulated";
  run.link = program::link_record(*flags.link);
  return run;
}

core::LayerRecord layer_record(const core::RunRecord& run, const TpLinearFlags& flags, const Case& one,
                               const Form& form) {
  core::LayerRecord record;
  record.run = run.run;
  record.program = run.program;
  record.basis = run.basis;
  record.layer = name_of(one.block);
  record.ranks = one.ranks;
  if (one.grid) record.grid = workload::text_of(*one.grid);
  record.threads = flags.threads;
  record.sequence_parallel = one.sequence_parallel;
  record.tiles = form.tiles;
  record.dtype = core::short_name_of(flags.shape.dtype);
  record.sizes = sizes_of(flags.shape);
  record.algorithm = flags.algorithm;
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const NameOfWay& way : kWaysOfRecords) record.times.push_back(time_record(form, way, direction));
  }
  const auto rank_passes = static_cast<double>(form.checked_passes * one.ranks);
  record.sent_bytes = static_cast<double>(form.sent_bytes) / rank_passes;
  record.formula_bytes = static_cast<double>(form.formula_bytes) / rank_passes;
  record.forward_sent_bytes = static_cast<double>(form.forward_sent_bytes) / rank_passes;
  record.memory_bytes = static_cast<double>(form.memory_bytes);
  record.energy = form.energy;
  add_verdict(record, form);
  return record;
}

}  // namespace lockstep::tp_linear
