#include "bench/mini_train/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "bench/program/run_records.h"
#include "collectives/transports/mpi_transport.h"
#include "core/error.h"
#include "simulator/prices/prices.h"
#include "trainer/train/rank_steps.h"
#include "workload/build_step.h"

namespace lockstep::mini_train {
namespace {

using schedules::Lane;
using schedules::Op;
using schedules::Step;
using schedules::StepTimeline;
using schedules::Task;

constexpr double kPsPerMs = 1e9;
constexpr std::size_t kMostPieces = 3;

// The parts of a step in milliseconds, mean over ranks, and "around": time outside of tasks. They sum to the step.
core::NamedNumbers parts_of(const std::vector<schedules::Breakdown>& ranks, double step_ms) {
  core::NamedNumbers parts = program::mean_parts_ms(ranks);
  double told_ms = 0;
  for (const auto& [name, ms] : parts) told_ms += ms;
  parts.emplace_back("around", std::max(step_ms - told_ms, 0.0));
  return parts;
}

// Key that is equal for tasks that do the same work, on any rank.
struct Alike {
  Op op;
  Lane lane;
  schedules::Comm comm;
  std::uint32_t what;
  friend auto operator<=>(const Alike&, const Alike&) = default;  // NOLINT(modernize-use-nullptr)
};

struct Spent {
  double ms = 0;     // mean over ranks
  double times = 0;  // likewise
};

std::map<Alike, Spent> spent_of(const Step& step, const StepTimeline& timeline) {
  std::map<Alike, Spent> all;
  const auto ranks = static_cast<double>(timeline.size());
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    for (std::size_t i = 0; i < timeline[r].size(); ++i) {
      const Task& task = step.of_rank[r].tasks[i];
      Spent& spent = all[{task.op, task.lane, task.comm, task.what}];
      spent.ms += static_cast<double>(timeline[r][i].end_ps - timeline[r][i].start_ps) / kPsPerMs / ranks;
      spent.times += 1 / ranks;
    }
  }
  return all;
}

bool is_in(const std::string& part, const Alike& alike) {
  switch (alike.lane) {
    case Lane::compute:
      break;
    case Lane::send:
    case Lane::receive:
      return part == "exposed_pipeline" || part == "bubble";
    case Lane::tensor:
      return part == "exposed_tensor";
    case Lane::gather:
      return part == "exposed_gather";
    case Lane::reduce:
    case Lane::replicas:
      return part == "exposed_reduce";
    case Lane::copy:
    case Lane::load:
    case Lane::host:
      return part == "exposed_copy";
  }
  switch (alike.op) {
    case Op::forward:
      return part == "forward";
    case Op::backward:
    case Op::input_gradient:
    case Op::weight_gradient:
      return part == "backward";
    case Op::recompute:
      return part == "recompute";
    case Op::optimizer:
      return part == "optimizer";
    default:
      return false;
  }
}

std::string name_of(const Alike& alike) {
  if (alike.comm != schedules::Comm::none) {
    return fmt::format("{} in lane {}", name_of(alike.comm), name_of(alike.lane));
  }
  if (alike.op == Op::send_activations) return "sending activations";
  if (alike.op == Op::send_gradient) return "sending their gradients";
  if (alike.op == Op::recv_activations) return "receiving activations";
  if (alike.op == Op::recv_gradient) return "receiving their gradients";
  if (alike.op == Op::optimizer) return "the optimizer";
  constexpr std::array kSides{"forward", "input gradient", "weight gradient", "gather again"};
  const workload::PieceName piece = workload::piece_named(alike.what);
  return fmt::format("{} ({})", workload::name_of(piece.kind), kSides.at(static_cast<std::size_t>(piece.side)));
}

// "reduce, 3.00 ms longer than predicted: ..."
std::string gap_text(const core::PredictedRecord& record, const std::map<Alike, Spent>& before,
                     const std::map<Alike, Spent>& after) {
  std::size_t widest = 0;
  const auto gap_of = [&](std::size_t part) {
    return record.measured_parts_ms[part].second - record.parts_ms[part].second;
  };
  for (std::size_t i = 1; i < record.parts_ms.size(); ++i) {
    if (std::abs(gap_of(i)) > std::abs(gap_of(widest))) widest = i;
  }
  const std::string& part = record.parts_ms[widest].first;
  std::string text = fmt::format("{}, {:.2f} ms {} than predicted", part, std::abs(gap_of(widest)),
                                 gap_of(widest) > 0 ? "longer" : "shorter");
  if (part == "around") return text + ": work outside of tasks (batches, zeroing of gradients) is not predicted";

  std::vector<std::pair<double, Alike>> pieces;
  for (const auto& [alike, spent] : after) {
    const auto found = before.find(alike);
    if (found != before.end() && is_in(part, alike)) pieces.emplace_back(spent.ms - found->second.ms, alike);
  }
  const double sign = gap_of(widest) > 0 ? 1 : -1;
  std::sort(pieces.begin(), pieces.end(),
            [&](const auto& a, const auto& b) { return sign * a.first > sign * b.first; });
  for (std::size_t i = 0; i < std::min(kMostPieces, pieces.size()); ++i) {
    if (sign * pieces[i].first <= 0) break;
    const Spent& was = before.at(pieces[i].second);
    const Spent& is = after.at(pieces[i].second);
    text += fmt::format("{} {} took {:.3f} ms, predicted {:.3f} ({:g} per rank)", i == 0 ? ":" : ";",
                        name_of(pieces[i].second), is.ms / is.times, was.ms / was.times, is.times);
  }
  return text;
}

}  // namespace

PredictedStep::PredictedStep(const TrainFlags& flags)
    : flags_(flags), machine_(simulator::load_machine(flags.predict)) {
  const trainer::TrainOptions& options = flags.options;
  if (machine_.measured.cores > 0 && machine_.measured.threads != options.threads) {
    throw core::usage_error(
        fmt::format("--predict {} was measured with {} thread(s) per rank, but --threads is {}; allowed: the same "
                    "(kernels_bench --threads {})",
                    flags.predict, machine_.measured.threads, options.threads, options.threads));
  }
  const auto refuse = [&](const std::string& with) {
    throw core::usage_error("--predict " + flags.predict + " with " + with +
                            ", which it does not model; allowed: without it");
  };
  if (options.link) refuse("--link");
  if (options.layout.compression.given()) refuse("--compression");
  if (machine_.measured.cores > 0) {
    if (options.device.cuda) refuse("--device cuda (the machine's times are for CPU kernels)");
    if (options.mpi != nullptr && options.mpi->placement().num_hosts > 1) refuse("ranks on several hosts");
  }
  std::set<std::string> met;
  works_of(options.model, options.layout, schedule_of(options.layout),
           {.kernel = [&](const workload::KernelCall& call) -> std::int64_t {
             if (!met.insert(workload::signature_of(call)).second) return 0;
             ++kernels_;
             if (simulator::is_measured(machine_, call)) ++measured_kernels_;
             return 0;
           }});
  made_ =
      predict(options.model, options.layout, machine_,
              {.detail = simulator::Detail::kernels, .extent = simulator::Extent::all_ranks, .keep_timeline = true});
}

std::string PredictedStep::text() const {
  return fmt::format("# predicted with {}: {:.2f} ms per step; {} of its {} kernels have measured times{}\n",
                     machine_.name, made_.step_s * 1e3, measured_kernels_, kernels_,
                     measured_kernels_ == kernels_ ? "" : ", the other times are computed from the device's peaks");
}

core::PredictedRecord PredictedStep::record(const Step& step, const StepTimeline& timeline, double step_ms) const {
  const auto lanes = trainer::blocking_lanes(flags_.options);
  const double predicted_ms = made_.step_s * 1e3;
  core::PredictedRecord record{
      .machine = machine_.name,
      .kernels = kernels_,
      .measured_kernels = measured_kernels_,
      .step_ms = predicted_ms,
      .parts_ms = parts_of(schedules::breakdown_of(made_.step, made_.timeline, lanes), predicted_ms),
      .measured_step_ms = step_ms,
      .measured_parts_ms = parts_of(schedules::breakdown_of(step, timeline, lanes), step_ms),
      .error = predicted_ms / step_ms - 1};
  record.gap = gap_text(record, spent_of(made_.step, made_.timeline), spent_of(step, timeline));
  return record;
}

std::string text_of(const core::PredictedRecord& predicted) {
  std::string text = "# predicted and measured ms per step (measured: the step with the median time)\n";
  const auto row = [&](const std::string& name, double before, double after) {
    text += fmt::format("#   {:<17} {:>9.2f} {:>9.2f}  {:>+6.1f} % of the step\n", name, before, after,
                        100 * (before - after) / predicted.measured_step_ms);
  };
  for (std::size_t i = 0; i < predicted.parts_ms.size(); ++i) {
    const auto& [name, before] = predicted.parts_ms[i];
    const double after = predicted.measured_parts_ms[i].second;
    if (before != 0 || after != 0) row(name, before, after);
  }
  row("step", predicted.step_ms, predicted.measured_step_ms);
  return text + "# largest gap: " + predicted.gap + "\n";
}

}  // namespace lockstep::mini_train
