#include "bench/context/records.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "bench/pipeline/records.h"
#include "workload/context_check.h"

namespace lockstep::context_bench {
namespace {

constexpr std::array kParts{"products", "other_kernels",
                            "communication"};  // in the order of TaskKind; products: attention's blocks

struct NamedForm {
  Form form;
  const char* name;
  bool has_both;  // kernels and communication
};
constexpr std::array kForms{
    NamedForm{Form::kernels, "kernels", false},
    NamedForm{Form::exchanges, "communication", false},
    NamedForm{Form::one_by_one, "serial", true},
    NamedForm{Form::beside, "async", true},
};

core::LayerTimeRecord time_record(const Result& result, const NamedForm& form, Direction direction) {
  core::LayerTimeRecord time;
  const auto d = static_cast<std::size_t>(direction);
  time.direction = direction == Direction::forward ? "forward" : "backward";
  time.way = form.name;
  time.samples_us = result.samples(form.form, direction);
  const double median = core::median(time.samples_us);
  const auto nearest = std::min_element(time.samples_us.begin(), time.samples_us.end(), [&](double a, double b) {
    return std::abs(a - median) < std::abs(b - median);
  });
  const Spent& spent = result.spent_us[static_cast<std::size_t>(form.form)][d]
                                      [static_cast<std::size_t>(nearest - time.samples_us.begin())];
  for (std::size_t k = 0; k < spent.size(); ++k) time.parts_us.emplace_back(kParts[k], std::max(spent[k], 0.0));
  if (form.has_both) time.exposed_us = result.exposed(form.form, direction);
  return time;
}

}  // namespace

core::RunRecord run_record(const ContextFlags& flags) {
  const int most = *std::max_element(flags.ranks.begin(), flags.ranks.end());
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

core::ContextRecord context_record(const core::RunRecord& run, const ContextFlags& flags,
                                   const parallel::ContextLayer& layer, const Result& result) {
  core::ContextRecord record;
  record.run = run.run;
  record.program = run.program;
  record.basis = run.basis;
  record.way = workload::name_of(layer.shape.way);
  record.ranks = layer.shape.ranks;
  record.threads = flags.threads;
  record.causal = layer.shape.causal;
  record.dtype = core::short_name_of(layer.dtype);
  record.sizes = {{"batch", static_cast<double>(layer.batch)},
                  {"length", static_cast<double>(layer.length)},
                  {"heads", static_cast<double>(layer.heads)},
                  {"head_columns", static_cast<double>(layer.head_columns)}};
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    for (const NamedForm& form : kForms) record.times.push_back(time_record(result, form, direction));
  }
  const workload::ContextList list = workload::context_list(layer.shape);
  const double all_chunks = workload::chunks_of(layer.shape);
  for (std::int32_t r = 0; r < layer.shape.ranks; ++r) {
    record.pairs.push_back(workload::chunk_pairs(list, r) / (all_chunks * all_chunks));
  }
  record.kernels_us = result.kernels_us;
  record.sent_bytes = {{"forward", result.sent_bytes[0]}, {"backward", result.sent_bytes[1]}};
  record.listed_bytes = {{"forward", result.listed_bytes[0]}, {"backward", result.listed_bytes[1]}};
  if (flags.link) {
    record.simulated_exposed_us = {{"forward", result.simulated_exposed_us[0]},
                                   {"backward", result.simulated_exposed_us[1]}};
  }
  record.energy = result.energy;
  record.peak_bytes = result.peak_bytes;
  record.checked_passes = result.checked_passes;
  record.difference = std::isnan(result.worst_difference) ? 1 : result.worst_difference;
  record.allowed_difference = result.allowed_difference;
  if (const std::string wrong = result.wrong(); !wrong.empty()) {
    record.status = "wrong";
    record.error = wrong;
  }
  return record;
}

}  // namespace lockstep::context_bench
