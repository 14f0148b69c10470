#include "bench/parallel/ddp.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "bench/program/place.h"
#include "bench/program/progress.h"
#include "bench/program/run_records.h"
#include "bench/serve/orders.h"
#include "bench/trainer/flags.h"
#include "bench/trainer/report.h"
#include "core/error.h"
#include "core/provenance.h"
#include "core/ranks.h"
#include "core/record.h"
#include "schedules/play.h"
#include "schedules/step/breakdown.h"
#include "trainer/train/train.h"

namespace lockstep::parallel_bench {
namespace {

using program::FlagValue;
using Flag = program::FlagOf<DdpFlags>;

std::vector<double> caps_of(const FlagValue& value) {
  std::vector<double> caps;
  for (const FlagValue& part : value.list()) caps.push_back(part.number_from(0, 1e6));
  return caps;
}

std::vector<workload::Compression> compressions_of(const FlagValue& value) {
  std::vector<workload::Compression> compressions;
  for (const FlagValue& part : value.list()) compressions.push_back(mini_train::compression_of(part));
  return compressions;
}

// Links are separated by semicolons, because a link contains commas.
std::vector<Link> links_of(const FlagValue& value) {
  std::vector<Link> links;
  for (const FlagValue& part : value.list(';')) {
    links.push_back(part.text == "none" ? Link() : Link(mini_train::link_of(part)));
  }
  return links;
}

const std::array kFlags{
    Flag{"--dtype", "f32", "dtype of weights and activations: f32, bf16 or f16 (with f32 master weights)",
         [](DdpFlags& f, const FlagValue& v) { f.step.options.layout.compute = mini_train::dtype_of(v); }},
    Flag{"--grad-dtype", "f32", "dtype in which gradients are kept and reduced: f32, or that of --dtype",
         [](DdpFlags& f, const FlagValue& v) { f.step.options.layout.gradient = mini_train::dtype_of(v); }},
    Flag{"--bucket-cap-mb", "25",
         "MiB of gradients per bucket, a list; the first bucket has 1 MiB; 0: one bucket for all",
         [](DdpFlags& f, const FlagValue& v) { f.bucket_caps_mb = caps_of(v); }},
    Flag{"--compression", "none",
         "encoding of gradients on the wire, a list: none, bf16, int8, int4, fp8, sign, topk:density=D, "
         "threshold:at=T:density=D, randomk:density=D, powersgd:rank=R; each takes a suffix :feedback=0 or 1",
         [](DdpFlags& f, const FlagValue& v) { f.compressions = compressions_of(v); }},
    Flag{"--link", "none", "emulated links between ranks, a list: 'latency_us=L,gbps=B;...'; none: as fast as memory",
         [](DdpFlags& f, const FlagValue& v) { f.links = links_of(v); }},
};

void check(const DdpFlags& flags) {
  const bool links = std::any_of(flags.links.begin(), flags.links.end(), [](const Link& link) { return !!link; });
  if (flags.step.place.mpi && links) {
    throw core::usage_error("--link emulates links between local ranks; allowed: with --transport local");
  }
  if (std::find(flags.step.replicas.begin(), flags.step.replicas.end(), 1) == flags.step.replicas.end()) return;
  throw core::usage_error("--dp 1 has nothing to reduce; allowed: 2 to 64");
}

}  // namespace

DdpFlags parse_ddp_flags(int argc, const char* const* argv) {
  DdpFlags flags;
  begin_step_flags(argc, argv, flags.step);
  program::CommandLine line(flags.step.program +
                            ": how much of the reduction of gradients a data-parallel training step hides.");
  declare_step_flags(line, flags.step);
  declare_all(line, kFlags, "Gradients");
  line.parse(argc, argv);
  read_step_flags(line, flags.step);
  read_all(line, kFlags, flags);
  check(flags);
  return flags;
}

std::vector<DdpCase> ddp_cases(const DdpFlags& flags) {
  std::vector<DdpCase> cases;
  for (const Link& link : flags.links) {
    for (const int replicas : flags.step.replicas) {
      for (const workload::Compression compression : flags.compressions) {
        for (const double cap_mb : flags.bucket_caps_mb) cases.push_back({replicas, cap_mb, link, compression});
      }
    }
  }
  return cases;
}

trainer::TrainOptions options_of(const DdpFlags& flags, const DdpCase& one) {
  trainer::TrainOptions options = flags.step.options;
  options.layout.dp = one.replicas;
  mini_train::set_sequences(flags.step.sequences, options.layout);
  options.layout.bucket_cap_bytes = static_cast<std::int64_t>(one.bucket_cap_mb * (1 << 20));
  options.link = one.link;
  options.layout.compression = one.compression;
  return trainer::checked(options);
}

bool is_oversubscribed(const DdpFlags& flags, const DdpCase& one) {
  return program::is_oversubscribed(flags.step.options.mpi, one.replicas, flags.step.options.threads);
}

namespace {

bool emulates(const DdpFlags& flags) {
  return std::any_of(flags.links.begin(), flags.links.end(), [](const Link& link) { return link.has_value(); });
}

bool any_oversubscribed(const DdpFlags& flags) {
  const std::vector<DdpCase> cases = ddp_cases(flags);
  return std::any_of(cases.begin(), cases.end(), [&](const DdpCase& one) { return is_oversubscribed(flags, one); });
}

std::size_t as_width(const DdpFlags& flags) {
  std::size_t width = 5;
  for (const workload::Compression& one : flags.compressions) width = std::max(width, text_of(one).size());
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

std::string cap_text(double cap_mb) {
  return cap_mb > 0 ? fmt::format("{:g}", cap_mb) : "one";
}

// Returns the rows of each pair of replica count and link.
std::vector<std::vector<std::size_t>> groups_of(const std::vector<DdpCase>& cases) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) {
      const DdpCase& other = cases[group.front()];
      return other.replicas == cases[i].replicas && link_text(other.link) == link_text(cases[i].link);
    });
    (found == groups.end() ? groups.emplace_back() : *found).push_back(i);
  }
  return groups;
}

std::string buckets_text(const DdpCase& one) {
  return (one.bucket_cap_mb > 0 ? fmt::format("buckets of {:g} MiB", one.bucket_cap_mb) : "one bucket") +
         (one.compression.given() ? fmt::format(" as {}", text_of(one.compression)) : "");
}

// Exposed times are differences within rounds, which other load on the machine disturbs less than step times of rows
// that ran minutes apart. Rows that are not certain to expose more than the best are best, too.
std::string best_text(const std::vector<DdpCase>& cases, const std::vector<DdpResult>& results,
                      const std::vector<std::size_t>& group) {
  const auto exposed = [&](std::size_t i) { return results[i].exposed(); };
  const std::size_t best = *std::min_element(
      group.begin(), group.end(), [&](std::size_t a, std::size_t b) { return exposed(a).value < exposed(b).value; });
  const std::string place = fmt::format("# dp {}, {}: ", cases[best].replicas,
                                        cases[best].link ? "links of " + link_text(cases[best].link) : "no links");
  const DdpResult& result = results[best];
  std::string names;
  std::size_t good = 0;
  core::Estimate widest = exposed(best);
  for (const std::size_t i : group) {
    if (exposed(i).half() > widest.half()) widest = exposed(i);
    if (exposed(i).low > exposed(best).high) continue;
    names += (good++ == 0 ? "" : ", ") + buckets_text(cases[i]);
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

std::string ddp_heading_text(const DdpFlags& flags) {
  const trainer::TrainOptions& options = flags.step.options;
  const workload::Model& model = options.model;
  std::string text = fmt::format(
      "# lockstep version {}, {}: data-parallel training steps, run in four ways\n"
      "# {}: {} layers, hidden {}, {} parameters; {} with gradients in {}; per rank: {} sequences of {} tokens, {} "
      "microbatch{}, {} thread{}\n",
      core::build().version, flags.step.program, title_of(model), model.layers, model.hidden, parameters_of(model),
      core::short_name_of(options.layout.compute), core::short_name_of(options.layout.gradient),
      options.layout.microbatch_size * options.layout.microbatches, options.model.sequence, options.layout.microbatches,
      options.layout.microbatches == 1 ? "" : "es", options.threads, options.threads == 1 ? "" : "s");
  text += fmt::format("# collectives: {}; {}\n", options.algorithm,
                      options.device.nccl      ? "by NCCL, which sends at least the bytes of the formula"
                      : options.mpi != nullptr ? "MPI messages"
                      : options.device.cuda    ? "by Lockstep's kernels, directly between GPU memories"
                      : emulates(flags)
                          ? "links are EMULATED in wall-clock time; kernels and reductions run on this machine"
                          : "through this machine's memory");
  if (any_oversubscribed(flags)) {
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
  return text + columns_text(as_width(flags));
}

std::string ddp_row_text(const DdpFlags& flags, const DdpCase& one, const DdpResult& result) {
  const std::string replicas = fmt::format("{}{}", one.replicas, is_oversubscribed(flags, one) ? "*" : "");
  const std::string wrong = result.sent_as_formula() ? std::to_string(result.wrong) : "bytes";
  const core::Estimate exposed = result.exposed();
  return fmt::format(
      " {:>4} {:>16} {:>{}} {:>7} {:>7} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9.2f} {:>9} {:>9} {:>9.2f} "
      "{:>9.2f} {:>8.2g} {:>6}\n",
      replicas, link_text(one.link), text_of(one.compression), as_width(flags), cap_text(one.bucket_cap_mb),
      result.buckets, result.sent_bytes / 1e6, result.compute_ms(), result.backward_ms(), result.communication_ms(),
      result.step_ms(),
      exposed.is_known(result.communication_ms()) ? fmt::format("{:.2f}", exposed.value) : "undecided",
      program::share_text(result.hidden()), result.one_by_one_ms(), result.predicted_ms(), 100 * result.relative_error,
      wrong);
}

std::string ddp_ending_text(const std::vector<DdpCase>& cases, const std::vector<DdpResult>& results) {
  std::string text;
  for (const auto& group : groups_of(cases)) text += best_text(cases, results, group);
  return text + checks_text(results);
}

namespace {

core::RunRecord run_of(const DdpFlags& flags, const DdpCase& one) {
  const trainer::TrainOptions& options = flags.step.options;
  core::RunRecord run = program::real_run_record(flags.step, one.replicas, options.threads, options.seed, one.link);
  program::add_place(options.device, options.mpi, one.replicas, run);
  return run;
}

core::ReductionsRecord reductions_of(const DdpCase& one, const DdpResult& result) {
  core::ReductionsRecord reductions;
  reductions.compression = text_of(one.compression);
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

core::OverlapRecord overlap_of(const DdpFlags& flags, const DdpCase& one, const DdpResult& result) {
  const trainer::TrainOptions& options = flags.step.options;
  core::OverlapRecord overlap;
  overlap.layers = static_cast<std::int32_t>(options.model.layers);
  overlap.bytes_per_layer = result.gradient_bytes / options.model.layers;
  overlap.replicas = one.replicas;
  overlap.bucket_cap_bytes = static_cast<std::int64_t>(one.bucket_cap_mb * (1 << 20));
  overlap.algorithm = options.algorithm;
  overlap.collectives = result.buckets;
  overlap.compute_alone_ms = result.compute_ms();
  overlap.communication_alone_ms = result.communication_ms();
  overlap.efficiency = result.hidden().value;
  overlap.reductions = reductions_of(one, result);
  return overlap;
}

void add_times(core::ScheduleRecord& record, const DdpResult& result) {
  const schedules::Spans spans{.makespan = result.step_ms(), .own = result.step_ms(), .work = result.compute_ms()};
  const schedules::Bubbles bubbles = schedules::bubbles_of(spans);
  record.makespan_ms = record.own_span_ms = result.step_ms();
  record.own_span_ms_of_rank.assign(static_cast<std::size_t>(record.ranks), result.step_ms());
  record.work_ms = result.compute_ms();
  record.bubbles = {bubbles.of_ideal, bubbles.of_makespan, bubbles.of_own_span, bubbles.own_of_ideal};
  for (const auto& rank : schedules::breakdown_of(result.step, result.timeline)) {
    record.exposed_ms.push_back(static_cast<double>(rank.all_exposed_ps()) / 1e9);
  }
  record.samples_ms = result.rounds.step_ms;
  record.closed_form_ms = core::ClosedFormRecord{result.predicted_ms(), "makespan"};
  record.timeline = program::timeline_record(result.step, result.timeline);
}

}  // namespace

void write_ddp_records(core::RecordWriter& writer, const DdpFlags& flags, const DdpCase& one, const DdpResult& result) {
  const core::RunRecord run = run_of(flags, one);
  core::ScheduleRecord record;
  record.run = run.run;
  record.program = run.program;
  record.schedule = "ddp";
  record.source = "gradient buckets: Li et al. 2020 (arXiv:2006.15704)";
  record.ranks = one.replicas;
  record.microbatches = flags.step.options.layout.microbatches;
  record.pipes = one.replicas;
  record.basis = run.basis;
  add_times(record, result);
  record.sends.assign(static_cast<std::size_t>(one.replicas), 0);
  record.overlap = overlap_of(flags, one, result);
  record.energy = result.energy;
  writer.write(run);
  writer.write(record);
}

namespace {

// Refuses cases that cannot run before anything is printed.
void check(const DdpFlags& flags, const DdpCase& one) {
  if (one.replicas == 1) {
    throw core::usage_error(
        "--dp 1 has nothing to reduce; allowed: 2 to 64; with --transport mpi, start 2 to 64 ranks with mpirun");
  }
  const trainer::TrainOptions options = options_of(flags, one);
  trainer::check_room(options, ddp_steps(options).made);
}

int serve_row(const DdpFlags& flags) {
  const std::vector<DdpCase> cases = ddp_cases(flags);
  serve::check_one(cases.size(), "row");
  check(flags, cases.front());
  serve_ddp(flags, cases.front());
  return 0;
}

}  // namespace

int run_ddp_overlap(const DdpFlags& flags, const program::Print& plain) {
  if (flags.step.serve) return serve_row(flags);
  const std::vector<DdpCase> cases = ddp_cases(flags);
  program::Progress progress("rows", cases.size());
  const program::Print print = progress.around(plain);
  for (const DdpCase& one : cases) check(flags, one);
  const bool tells = program::tells(flags.step.options.mpi);
  core::RecordWriter writer(tells ? flags.step.json_file : "");
  print(mini_train::place_text(options_of(flags, cases.front())));
  print(ddp_heading_text(flags));
  std::vector<DdpResult> results;
  bool wrong = false;
  for (const DdpCase& one : cases) {
    results.push_back(run_ddp(flags, one));
    progress.one_done();
    if (!tells) continue;
    print(ddp_row_text(flags, one, results.back()));
    if (results.back().energy || &one == &cases.back()) print(results.back().energy_text);
    wrong = wrong || !results.back().is_right();
    if (writer.is_open()) write_ddp_records(writer, flags, one, results.back());
  }
  if (!tells) return 0;
  print(ddp_ending_text(cases, results));
  writer.commit();
  return wrong ? static_cast<int>(core::Failure::wrong_data) : 0;
}

}  // namespace lockstep::parallel_bench
