#include "bench/data_parallel/ddp.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/mini_train/flags.h"
#include "bench/program/place.h"
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
  DdpFlags flags;
  begin_step_flags(argc, argv, flags.step);
  program::CommandLine line(flags.step.program +
                            ": how much of the reduction of gradients a data-parallel training step hides.");
  declare_step_flags(line, flags.step);
  declare_all(line, kFlagsOfLayout, "Gradients");
  declare_all(line, kSwept, "Gradients");
  declare_all(line, kFlags, "Gradients");
  line.parse(argc, argv);
  read_step_flags(line, flags.step);
  read_all(line, kFlagsOfLayout, flags.step.options.layout);
  read_sweeps(line, kSwept, flags.step);
  read_all(line, kFlags, flags);
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

std::size_t as_width(const std::vector<TrainOptions>& rows) {
  std::size_t width = 5;
  for (const TrainOptions& row : rows) width = std::max(width, text_of(row.layout.compression).size());
  return width;
}

std::string columns_text(std::size_t as) {
  constexpr const char* kFormat =
      "#{:>4} {:>16} {:>{}} {:>7} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>8} {:>6}\n";
  return fmt::format(fmt::runtime(kFormat), "dp", "link", "as", as, "cap", "buckets", "sent", "compute", "backward",
                     "comm", "step", "exposed", "hidden", "after", "predicted", "error", "wrong") +
         fmt::format(fmt::runtime(kFormat), "", "(us, GB/s)", "", as, "(MiB)", "", "(MB)", "(ms)", "(ms)", "(ms)",
                     "(ms)", "(ms)", "(%)", "(ms)", "(ms)", "(%)", "");
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
           " of it; more --steps or fewer ranks would decide it\n";
  }
  return place +
         fmt::format("{} expose the least communication: {:.2f} of {:.2f} ms, {} % hidden; the step takes {:.2f} ms\n",
                     names, result.exposed_ms(), result.communication_ms(), program::share_text(result.hidden()),
                     result.step_ms());
}

std::string checks_text(const std::vector<DdpResult>& results) {
  const auto count = [&](const auto& holds) { return std::count_if(results.begin(), results.end(), holds); };
  double most = 0;
  for (const DdpResult& result : results) most = std::max(most, result.most_of_bound);
  return fmt::format(
      "# gradients completed in bucket order in {} of {} rows; counted bytes equal the formula in {}; the largest "
      "error of "
      "a gradient is {:.2f} of its bound\n",
      count([](const DdpResult& r) { return r.in_planned_order; }), results.size(),
      count([](const DdpResult& r) { return r.sent_as_formula(); }), most);
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
      "# compute: kernels alone; backward: its part for the last microbatch; comm: buckets alone, one after the "
      "other;\n"
      "#   step: buckets are reduced during the backward; after: after it; exposed: step - compute;\n"
      "#   hidden: (comm - exposed) / min(comm, backward), none of one bucket; predicted: step time by the recurrence "
      "of buckets;\n"
      "#   error: Euclidean norm of the error of reduced gradients over that of their exact sum;\n"
      "#   wrong: elements of gradients and weights that differ from those of `after` in any bit, or from those of one "
      "rank\n"
      "#   that does all the work by more than the bound of the encoding (docs/metrics.md);\n"
      "#   times are medians over rounds, each of which runs every way once\n";
  return text + columns_text(as_width(rows));
}

std::string ddp_row_text(const std::vector<TrainOptions>& rows, const TrainOptions& row, const DdpResult& result) {
  const std::string replicas = fmt::format("{}{}", row.layout.dp, is_oversubscribed(row) ? "*" : "");
  const std::string wrong = result.sent_as_formula() ? std::to_string(result.wrong) : "bytes";
  const core::Estimate exposed = result.exposed();
  return fmt::format(
      " {:>4} {:>16} {:>{}} {:>7} {:>7} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9} {:>9} {:>9.2f} "
      "{:>9.2f} {:>8.2g} {:>6}\n",
      replicas, link_text(row.link), text_of(row.layout.compression), as_width(rows),
      row.layout.bucket_cap_bytes > 0 ? cap_text(row.layout) : "one", result.buckets, result.sent_bytes / 1e6,
      result.compute_ms(), result.backward_ms(), result.communication_ms(), result.step_ms(),
      exposed.is_known(result.communication_ms()) ? fmt::format("{:.2f}", exposed.value) : "undecided",
      program::share_text(result.hidden()), result.one_by_one_ms(), result.predicted_ms(), 100 * result.relative_error,
      wrong);
}

std::string ddp_ending_text(const std::vector<TrainOptions>& rows, const std::vector<DdpResult>& results) {
  std::string text;
  for (const auto& group : groups_of(rows)) text += best_text(rows, results, group);
  return text + checks_text(results);
}

namespace {

core::ReductionsRecord reductions_of(const TrainOptions& row, const DdpResult& result) {
  core::ReductionsRecord reductions;
  reductions.compression = text_of(row.layout.compression);
  reductions.backward_ms = result.backward_ms();
  reductions.one_by_one_ms = result.one_by_one_ms();
  reductions.exposed_ms = result.exposed_ms();
  reductions.exposed_samples_ms = result.exposed_samples_ms();
  reductions.communication_samples_ms = result.rounds.communication_ms;
  reductions.sent_bytes = result.sent_bytes;
  reductions.formula_bytes = result.formula_bytes;
  reductions.wrong = result.wrong;
  reductions.relative_error = result.relative_error;
  reductions.status = result.is_right() ? "ok" : "wrong";
  return reductions;
}

core::OverlapRecord overlap_of(const TrainOptions& row, const DdpResult& result) {
  core::OverlapRecord overlap;
  overlap.layers = static_cast<std::int32_t>(row.model.layers);
  overlap.bytes_per_layer = result.gradient_bytes / row.model.layers;
  overlap.replicas = row.layout.dp;
  overlap.bucket_cap_bytes = row.layout.bucket_cap_bytes;
  overlap.algorithm = row.algorithm;
  overlap.collectives = result.buckets;
  overlap.compute_alone_ms = result.compute_ms();
  overlap.communication_alone_ms = result.communication_ms();
  overlap.efficiency = result.hidden().value;
  overlap.reductions = reductions_of(row, result);
  return overlap;
}

// Each row is a run of its own because a run has exactly one link: emulated if the row has one, measured otherwise.
void write_records(core::RecordWriter& writer, const StepFlags& flags, const TrainOptions& row,
                   const DdpResult& result) {
  const core::RunRecord run = mini_train::run_record(flags, row, row.layout.dp);
  core::ScheduleRecord record =
      program::replicas_record(run, row.layout.dp, row.layout.microbatches, result.step_ms(), result.compute_ms());
  record.schedule = "ddp";
  record.source = "gradient buckets: Li et al. 2020 (arXiv:2006.15704)";
  for (const auto& rank : schedules::breakdown_of(result.step, result.timeline)) {
    record.exposed_ms.push_back(static_cast<double>(rank.all_exposed_ps()) / 1e9);
  }
  record.samples_ms = result.rounds.step_ms;
  record.closed_form_ms = core::ClosedFormRecord{result.predicted_ms(), "makespan"};
  record.timeline = program::timeline_record(result.step, result.timeline);
  record.overlap = overlap_of(row, result);
  record.energy = result.energy;
  writer.write(run);
  writer.write(record);
}

}  // namespace

int run_ddp_overlap(const DdpFlags& flags, const program::Print& print) {
  const std::vector<TrainOptions> rows = ddp_rows(flags);
  const StepFlags& step = flags.step;
  const RowsOutput<DdpResult> output{
      .heading = mini_train::place_text(rows.front()) + ddp_heading_text(step, rows),
      .serve = serve_ddp,
      .run = [](const StepFlags& of, const TrainOptions& row) { return run_ddp(of, row); },
      .row_text = [&](const TrainOptions& row, const DdpResult& result) { return ddp_row_text(rows, row, result); },
      .ending = [&](const std::vector<DdpResult>& results) { return ddp_ending_text(rows, results); },
      .write = [&](core::RecordWriter& writer, const TrainOptions& row,
                   const DdpResult& result) { write_records(writer, step, row, result); }};
  return run_rows(step, rows, output, print);
}

}  // namespace lockstep::parallel_bench
