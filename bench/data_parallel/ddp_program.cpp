#include "bench/data_parallel/ddp.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/mini_train/flags.h"
#include "bench/mini_train/report.h"
#include "bench/program/columns.h"
#include "bench/program/place.h"
#include "bench/program/progress.h"
#include "bench/program/run_records.h"
#include "core/error.h"
#include "core/provenance.h"
#include "core/ranks.h"
#include "core/record.h"
#include "schedules/step/breakdown.h"
#include "trainer/train/train.h"

namespace lockstep::parallel_bench {
namespace {

using mini_train::LayoutFlag;
using program::FlagValue;
using trainer::TrainOptions;
using Flag = program::FlagOf<DdpFlags>;

// Links are separated by semicolons, because a link contains commas.
std::vector<Link> links_of(const FlagValue& value) {
  std::vector<Link> links;
  for (const FlagValue& part : value.list(';')) {
    links.push_back(part.text == "none" ? Link() : Link(mini_train::link_of(part)));
  }
  return links;
}

constexpr std::array kFlagsOfLayout{
    LayoutFlag{"--dtype", "f32", "dtype of weights and activations: f32, bf16 or f16 (with f32 master weights)",
               "dtype"},
    LayoutFlag{"--grad-dtype", "f32", "dtype in which gradients are kept and reduced: f32, or the same as --dtype",
               "grad_dtype"},
};

const std::array kSwept{
    SweptFlag{{"--compression", "none",
               "encoding of gradients on the wire, a list: none, bf16, int8, int4, fp8, sign, topk:density=D, "
               "threshold:at=T:density=D, randomk:density=D, powersgd:rank=R; each takes a suffix :feedback=0 or 1",
               "compression"}},
    SweptFlag{{"--bucket-cap-mb", "25",
               "MiB of gradients per bucket, a list; the first bucket has 1 MiB; 0: one bucket for all", "bucket_mb"}},
};

const std::array kFlags{
    Flag{"--link", "none", "emulated links between ranks, a list: 'latency_us=L,gbps=B;...'; none: as fast as memory",
         [](DdpFlags& f, const FlagValue& v) { f.links = links_of(v); }},
};

bool emulates(const Link& link) {
  return link.has_value();
}

void check(const DdpFlags& flags) {
  if (flags.step.place.mpi && std::any_of(flags.links.begin(), flags.links.end(), emulates)) {
    throw core::usage_error("--link emulates links between local ranks; allowed: with --transport local");
  }
  for (const workload::Layout& layout : swept_layouts(flags.step)) {
    if (layout.dp > 1) continue;
    throw core::usage_error(
        "--dp 1 has nothing to reduce; allowed: 2 to 64; with --transport mpi, start 2 to 64 ranks with mpirun");
  }
}

}  // namespace

DdpFlags parse_ddp_flags(int argc, const char* const* argv) {
  auto flags =
      parse_step_line<DdpFlags>(argc, argv, ": how much of the gradient reduction a data-parallel training step hides.",
                                "Gradients", kFlagsOfLayout, kSwept, kFlags);
  check(flags);
  return flags;
}

std::vector<TrainOptions> ddp_rows(const DdpFlags& flags) {
  check(flags);
  std::vector<TrainOptions> rows;
  for (const Link& link : flags.links) {
    for (const workload::Layout& layout : swept_layouts(flags.step)) {
      rows.push_back(with_layout(flags.step, layout));
      rows.back().link = link;
      rows.back() = trainer::checked(rows.back());
    }
  }
  return rows;
}

// "25"; "0" for one bucket.
std::string cap_text(const workload::Layout& layout) {
  return fmt::format("{:.4g}", static_cast<double>(layout.bucket_cap_bytes) / (1 << 20));
}

namespace {

bool is_oversubscribed(const TrainOptions& row) {
  return program::is_oversubscribed(row.mpi, row.layout.dp, row.threads);
}

int as_width(const std::vector<TrainOptions>& rows) {
  std::size_t width = 5;
  for (const TrainOptions& row : rows) width = std::max(width, text_of(row.layout.compression).size());
  return static_cast<int>(width);
}

// Returns the rows of each pair of replica count and link.
std::vector<std::vector<std::size_t>> groups_of(const std::vector<TrainOptions>& rows) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      const TrainOptions& other = rows[group.front()];
      return other.layout.dp == rows[i].layout.dp && link_text(other.link) == link_text(rows[i].link);
    });
    (found == groups.end() ? groups.emplace_back() : *found).push_back(i);
  }
  return groups;
}

std::string buckets_text(const workload::Layout& layout) {
  return (layout.bucket_cap_bytes > 0 ? "buckets of " + cap_text(layout) + " MiB" : "one bucket") +
         (layout.compression.given() ? " as " + text_of(layout.compression) : "");
}

// Exposed times are differences within rounds, which other load on the machine disturbs less than step times of rows
// that ran minutes apart. Rows that are not certain to expose more than the best are best, too.
std::string best_text(const std::vector<TrainOptions>& rows, const std::vector<DdpResult>& results,
                      const std::vector<std::size_t>& group) {
  const auto exposed = [&](std::size_t i) { return results[i].exposed(); };
  const std::size_t best = *std::min_element(
      group.begin(), group.end(), [&](std::size_t a, std::size_t b) { return exposed(a).value < exposed(b).value; });
  const std::string place = fmt::format("# dp {}, {}: ", rows[best].layout.dp,
                                        rows[best].link ? "links of " + link_text(rows[best].link) : "no links");
  const DdpResult& result = results[best];
  std::string names;
  std::size_t good = 0;
  core::Estimate widest = exposed(best);
  for (const std::size_t i : group) {
    if (exposed(i).half() > widest.half()) widest = exposed(i);
    if (exposed(i).low > exposed(best).high) continue;
    names += (good++ == 0 ? "" : ", ") + buckets_text(rows[i].layout);
  }
  if (group.size() > 1 && good == group.size()) {
    return place + "which buckets expose the least communication is " +
           core::undecided_text(widest, result.communication_ms()) +
           " of the communication; more --steps or fewer ranks would decide it\n";
  }
  const core::Estimate hidden = result.hidden();
  return place + fmt::format("{} expose the least communication: {:.2f} of {:.2f} ms{}; the step takes {:.2f} ms\n",
                             names, result.exposed().value, result.communication_ms(),
                             hidden.is_known(1) ? ", " + program::share_text(hidden) + " % hidden" : "",
                             result.step_ms());
}

std::string checks_text(const std::vector<DdpResult>& results) {
  const auto count = [&](const auto& holds) { return std::count_if(results.begin(), results.end(), holds); };
  double most = 0;
  for (const DdpResult& result : results) most = std::max(most, result.part.worst());
  return fmt::format(
      "# gradients completed in bucket order in {} of {} rows; counted bytes equal the formula in {}; the largest "
      "error of a gradient is {:.2f} of its bound\n",
      count([](const DdpResult& r) { return r.in_planned_order; }), results.size(),
      count([](const DdpResult& r) { return r.part.sent_as_formula(); }), most);
}

}  // namespace

std::string link_text(const Link& link) {
  if (!link) return "none";
  const std::string gbps = link->gbps > 0 ? fmt::format("{:g}", link->gbps) : "any";
  return fmt::format("{:g}, {}", link->latency_us, gbps);
}

std::string ddp_heading_text(const StepFlags& flags, const std::vector<TrainOptions>& rows) {
  const TrainOptions& options = rows.front();
  const workload::Model& model = options.model;
  std::string text = fmt::format(
      "# lockstep version {}, {}: data-parallel training steps, run in four ways\n"
      "# {}: {} layers, hidden {}, {} parameters; {} with gradients in {}; per rank: {} sequences of {} tokens, {} "
      "microbatch{}, {} thread{}\n",
      core::build().version, flags.program, title_of(model), model.layers, model.hidden, parameters_of(model),
      core::short_name_of(options.layout.compute), core::short_name_of(options.layout.gradient),
      options.layout.microbatch_size * options.layout.microbatches, options.model.sequence, options.layout.microbatches,
      options.layout.microbatches == 1 ? "" : "es", options.threads, options.threads == 1 ? "" : "s");
  text +=
      fmt::format("# collectives: {}; {}\n", options.algorithm,
                  options.device.nccl      ? "by NCCL, which sends at least the bytes of the formula"
                  : options.mpi != nullptr ? "MPI messages"
                  : options.device.cuda    ? "by Lockstep's kernels, directly between GPU memories"
                  : std::any_of(rows.begin(), rows.end(), [](const TrainOptions& row) { return emulates(row.link); })
                      ? "links are EMULATED in wall-clock time; kernels and reductions run on this machine"
                      : "through this machine's memory");
  if (std::any_of(rows.begin(), rows.end(), is_oversubscribed)) {
    text += fmt::format("# *: OVERSUBSCRIBED: more kernel threads than cores ({} here), so ranks share cores\n",
                        core::usable_cores());
  }
  text +=
      "# as: encoding of gradients on the wire; sent: bytes per rank and step, counted in the plans that ran;\n"
      "# compute: kernels alone; backward: its part for the last microbatch; comm: buckets alone, sequentially;\n"
      "#   step: buckets are reduced during the backward; after: after it; exposed: step - compute;\n"
      "#   hidden: (comm - exposed) / min(comm, backward), none for one bucket; predicted: step time by the recurrence "
      "of buckets;\n"
      "#   error: Euclidean norm of the error of reduced gradients over the norm of their exact sum;\n"
      "#   wrong: elements of gradients and weights that differ from `after` in any bit, or from one rank\n"
      "#   that does all the work by more than the bound of the encoding (docs/metrics.md);\n"
      "#   times are medians over rounds, each of which runs every way once\n";
  return text;
}

std::vector<program::Column<DdpRow>> ddp_columns(const std::vector<TrainOptions>& rows) {
  using step_bench::Mode;
  const auto median = [](const char* name, std::vector<double> DdpResult::*samples) {
    return program::Column<DdpRow>{
        {name, "(ms)", 9}, {}, [samples](auto& r) { return core::median(r.result.*samples); }};
  };
  const auto of_mode = [](const char* name, Mode mode) {
    return program::Column<DdpRow>{{name, "(ms)", 9}, {}, [mode](auto& r) { return r.result.ms(mode); }};
  };
  const auto replicas = [](auto& r) {
    return std::to_string(r.options.layout.dp) + (is_oversubscribed(r.options) ? "*" : "");
  };
  const auto cap = [](auto& r) { return r.options.layout.bucket_cap_bytes > 0 ? cap_text(r.options.layout) : "one"; };
  const auto exposed = [](auto& r) {
    const core::Estimate found = r.result.exposed();
    return found.is_known(r.result.communication_ms()) ? program::number_text(found.value, {}) : "undecided";
  };
  const auto error = [](auto& r) { return fmt::format("{:.2g}", 100 * r.result.relative_error); };
  return {{{"dp", "", 4}, replicas},
          {{"link", "(us, GB/s)", 16}, [](auto& r) { return link_text(r.options.link); }},
          {{"as", "", as_width(rows)}, [](auto& r) { return text_of(r.options.layout.compression); }},
          {{"cap", "(MiB)", 7}, cap},
          {{"buckets", "", 7}, program::kWhole, [](auto& r) { return r.result.buckets; }},
          {{"sent", "(MB)", 9}, {2, 1e-6}, [](auto& r) { return r.result.sent_bytes(); }},
          of_mode("compute", Mode::kernels),
          median("backward", &DdpResult::backward_ms),
          of_mode("comm", Mode::exchanges),
          of_mode("step", Mode::overlapped),
          {{"exposed", "(ms)", 9}, exposed},
          {{"hidden", "(%)", 9}, [](auto& r) { return program::share_text(r.result.hidden()); }},
          of_mode("after", Mode::serial),
          median("predicted", &DdpResult::predicted_ms),
          {{"error", "(%)", 8}, error},
          {{"wrong", "", 6}, program::kWhole, [](auto& r) { return r.result.part.wrong(); }}};
}

std::string ddp_ending_text(const std::vector<TrainOptions>& rows, const std::vector<DdpResult>& results) {
  std::string text;
  for (const auto& group : groups_of(rows)) text += best_text(rows, results, group);
  return text + checks_text(results);
}

namespace {

core::ReductionsRecord reductions_of(const TrainOptions& row, const DdpResult& result) {
  return {.compression = text_of(row.layout.compression),
          .backward_ms = core::median(result.backward_ms),
          .one_by_one_ms = result.ms(step_bench::Mode::serial),
          .exposed_ms = result.exposed().value,
          .exposed_samples_ms = result.exposed_samples_ms(),
          .communication_samples_ms = result.samples_ms(step_bench::Mode::exchanges),
          .sent_bytes = result.sent_bytes(),
          .formula_bytes = result.formula_bytes(),
          .wrong = result.part.wrong(),
          .relative_error = result.relative_error,
          .status = result.wrong().empty() ? "ok" : "wrong"};
}

core::OverlapRecord overlap_of(const TrainOptions& row, const DdpResult& result) {
  return {.layers = row.model.layers,
          .bytes_per_layer = result.gradient_bytes / row.model.layers,
          .replicas = row.layout.dp,
          .bucket_cap_bytes = row.layout.bucket_cap_bytes,
          .algorithm = row.algorithm,
          .collectives = result.buckets,
          .compute_alone_ms = result.ms(step_bench::Mode::kernels),
          .communication_alone_ms = result.communication_ms(),
          .efficiency = result.hidden().value,
          .reductions = reductions_of(row, result)};
}

core::ScheduleRecord schedule_record(const core::RunRecord& run, const TrainOptions& row, const DdpResult& result) {
  core::ScheduleRecord record = program::replicas_record(run, row.layout.dp, row.layout.microbatches, result.step_ms(),
                                                         result.ms(step_bench::Mode::kernels));
  record.schedule = "ddp";
  record.source = "gradient buckets: Li et al. 2020 (arXiv:2006.15704)";
  for (const auto& rank : schedules::breakdown_of(result.step, result.timeline)) {
    record.exposed_ms.push_back(static_cast<double>(rank.all_exposed_ps()) / 1e9);
  }
  record.samples_ms = result.samples_ms(step_bench::Mode::overlapped);
  record.closed_form_ms = core::ClosedFormRecord{core::median(result.predicted_ms), "makespan"};
  record.timeline = program::timeline_record(result.step, result.timeline);
  record.overlap = overlap_of(row, result);
  record.energy = result.part.energy;
  return record;
}

}  // namespace

// Each row is a run of its own because a run has exactly one link: emulated if the row has one, measured otherwise.
int run_ddp_overlap(const DdpFlags& flags, const program::Print& plain) {
  const std::vector<TrainOptions> rows = ddp_rows(flags);
  if (serves(flags.step, rows, serve_ddp)) return 0;
  program::Progress progress("rows", rows.size());
  const bool writes = program::writes_output(flags.step.options.mpi);
  program::StepTable<DdpRow> table(ddp_columns(rows), progress.around(plain), writes ? flags.step.json_file : "");
  table.begin(mini_train::place_text(rows.front()) + ddp_heading_text(flags.step, rows));
  std::vector<DdpResult> results;
  for (const TrainOptions& row : rows) {
    const DdpResult& result = results.emplace_back(run_ddp(flags.step, row));
    progress.one_done();
    if (!writes) continue;
    table.show({row, result}, result.wrong(), energy_text(result.part, &row == &rows.back()));
    const core::RunRecord run = mini_train::run_record(flags.step, row, row.layout.dp);
    table.write(run);
    table.write(schedule_record(run, row, result));
  }
  return writes ? table.end(ddp_ending_text(rows, results)) : 0;
}

}  // namespace lockstep::parallel_bench
