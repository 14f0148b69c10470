// simulate scaling: weak and strong scaling of a layout over numbers of devices; or published runs, each predicted in
// its own layout and compared with the published value.
#include <fmt/format.h>

#include "bench/simulate/simulate.h"
#include "core/error.h"

namespace lockstep::simulate {
namespace {

using simulator::Machine;
using simulator::Prediction;
using workload::Layout;
using workload::Model;

struct ScalingFlags : StudyFlags {
  ScalingFlags() { layout = "tp=8,dp=1,batch=16,zero=1,sp=yes"; }
  void declare(program::CommandLine& line) {
    line.add_switch("--weak", weak, "the batch grows with the devices", "The study");
    line.add_switch("--strong", strong, "the batch is constant; without either switch, both", "The study");
  }
  bool weak = false;
  bool strong = false;
  std::vector<int> gpus{8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
  std::int64_t batch = 2048;
  std::string grow = "dp";
  std::string published;
};

const std::array kScalingFlags{
    program::FlagOf<ScalingFlags>{
        "--gpus", "8,16,...,16384", "numbers of devices",
        [](ScalingFlags& f, const program::FlagValue& v) { f.gpus = program::integer_list(v, 1, 10'000'000); }},
    program::FlagOf<ScalingFlags>{
        "--batch", "2048", "sequences per step of strong scaling",
        [](ScalingFlags& f, const program::FlagValue& v) { f.batch = v.integer(1, 100'000'000); }},
    program::FlagOf<ScalingFlags>{"--grow", "dp", "field of the layout that grows with the devices: dp tp pp cp",
                                  [](ScalingFlags& f, const program::FlagValue& v) { f.grow = v.text; }},
    program::FlagOf<ScalingFlags>{
        "--published", "", "instead: published runs, each in its own layout: sc21-weak sc21-strong",
        [](ScalingFlags& f, const program::FlagValue& v) { f.published = published_table(v.text).name; }},
};

std::int32_t Layout::*grown_field(const std::string& name) {
  const std::array<std::pair<const char*, std::int32_t Layout::*>, 4> fields{
      {{"dp", &Layout::dp}, {"tp", &Layout::tp}, {"pp", &Layout::pp}, {"cp", &Layout::cp}}};
  for (const auto& [known, field] : fields) {
    if (name == known) return field;
  }
  throw core::usage_error("--grow " + name + ": not known; allowed: dp tp pp cp");
}

// The base layout on `gpus` devices with the given batch, or why there is no such layout.
struct Grown {
  Layout layout;
  std::string why_not;
};
Grown grown(const Model& model, const Layout& base, std::int32_t Layout::*field, std::int64_t gpus,
            std::int64_t batch) {
  Grown grown_layout{base, ""};
  const std::int64_t others = base.ranks() / base.*field;
  if (gpus % others != 0) {
    grown_layout.why_not =
        fmt::format("{} devices are not a multiple of {}, the product of the layout's other fields", gpus, others);
    return grown_layout;
  }
  grown_layout.layout.*field = static_cast<std::int32_t>(gpus / others);
  const std::int64_t each = grown_layout.layout.dp * grown_layout.layout.microbatch_size;
  if (batch % each != 0) {
    grown_layout.why_not = fmt::format("a batch of {} is not a multiple of dp x microbatch, {}", batch, each);
    return grown_layout;
  }
  grown_layout.layout.microbatches = static_cast<std::int32_t>(batch / each);
  grown_layout.why_not = why_invalid(model, grown_layout.layout);
  return grown_layout;
}

std::string columns() {
  return fmt::format("#{:>7} {:>9} {:>11} {:>9} {:>12} {:>7}{}\n#{:>7} {:>9} {:>11} {:>9} {:>12} {:>7}{}\n", "GPUs",
                     "batch", "step", "TFLOP/s", "tokens", "effic.", parts_columns_text(), "", "", "(ms)", "(per GPU)",
                     "(/s)", "(%)", "       (% of the step)");
}

struct Last {
  std::int64_t gpus = 0;
  double efficiency = 0;
  std::string grew;
};

class Curve {
 public:
  Curve(const ScalingFlags& flags, Study& study, const program::Print& print)
      : flags_(flags),
        study_(study),
        print_(print),
        model_(workload::parse_model(flags.model)),
        machine_(simulator::load_machine(flags.machine)),
        base_(workload::parse_layout(flags.layout)) {}

  void run(const std::string& series) {
    const bool weak = series == "weak";
    print_(fmt::format("# {} scaling of {}: {} grows, {}\n{}", series, text_of(base_), flags_.grow,
                       weak ? "and the batch with it" : fmt::format("{} sequences per step", flags_.batch), columns()));
    Prediction first;
    double first_a_gpu = 0;
    Last last;
    for (const int gpus : flags_.gpus) {
      const std::int64_t batch = weak ? base_.global_batch() * gpus / base_.ranks() : flags_.batch;
      const Grown grown_layout = grown(model_, base_, grown_field(flags_.grow), gpus, batch);
      if (!grown_layout.why_not.empty()) {
        skip(series, gpus, grown_layout.why_not);
        continue;
      }
      Prediction now = predict(model_, grown_layout.layout, machine_);
      const double a_gpu = now.tokens_per_s / gpus;
      if (first_a_gpu == 0) {
        first_a_gpu = a_gpu;
        first = now;
      }
      last = {gpus, a_gpu / first_a_gpu, grown_part_text(first, now)};
      print_(fmt::format(" {:>7} {:>9} {:>11.2f} {:>9.1f} {:>12.0f} {:>7.2f}{}{}\n", gpus, batch, now.step_s * 1e3,
                         tflops_per_gpu(grown_layout.layout, now), now.tokens_per_s, 100 * last.efficiency,
                         parts_text(now), now.fits ? "" : "  does not fit"));
      write(series, gpus, grown_layout.layout, now, last.efficiency);
    }
    if (last.gpus > 0) print_(finding(series, last));
  }

 private:
  static std::string finding(const std::string& series, const Last& last) {
    return fmt::format(
        "# {}: {:.1f} % of the first point's throughput per GPU on {} GPUs; the part that grew most is {}\n", series,
        100 * last.efficiency, last.gpus, last.grew);
  }

  void skip(const std::string& series, std::int64_t gpus, const std::string& why_not) {
    print_(fmt::format("#{:>8} {}\n", gpus, why_not));
    core::StudyRecord point = study_.point(setting(), series);
    point.at = {{"gpus", static_cast<double>(gpus)}};
    point.note = why_not;
    study_.write(point);
  }

  void write(const std::string& series, std::int64_t gpus, const Layout& layout, const Prediction& prediction,
             double efficiency) {
    core::StudyRecord point = study_.point(setting(), series, layout, prediction);
    point.at = {{"gpus", static_cast<double>(gpus)}};
    point.values.emplace_back("efficiency", efficiency);
    point.values.emplace_back("batch", static_cast<double>(layout.global_batch()));
    study_.write(point);
  }

  std::string setting() const { return setting_of(model_, machine_) + ", " + text_of(base_); }

  const ScalingFlags& flags_;
  Study& study_;
  const program::Print& print_;
  Model model_;
  Machine machine_;
  Layout base_;
};

void run_published(const ScalingFlags& flags, Study& study, const program::Print& print) {
  const ScalingFlags usual;
  if (flags.weak || flags.strong || flags.model != usual.model || flags.layout != usual.layout ||
      flags.machine != usual.machine || flags.gpus != usual.gpus || flags.batch != usual.batch ||
      flags.grow != usual.grow) {
    throw core::usage_error(
        "--published with other flags of the study, which published runs define; allowed: --published alone");
  }
  const PublishedTable table = published_table(flags.published);
  if (table.name == "nanotron-tp") {
    throw core::usage_error("--published nanotron-tp: only varies tensor parallelism; allowed: simulate tp-boundary");
  }
  const Machine machine = simulator::load_machine(table.machine);
  print(fmt::format("# simulated on {}, and published TFLOP/s per GPU: {}\n#{:>7} {:>11} {:>10} {:>7}{}  {}\n",
                    machine.name, table.source, "GPUs", "simulated", "published", "off (%)", parts_columns_text(),
                    "series, model"));
  const std::string setting = table.name + " on " + machine.name;
  for (const PublishedRow& row : table.rows) {
    const Model model = workload::parse_model(row.model);
    const Layout layout = workload::parse_layout(row.layout);
    const Prediction prediction = predict(model, layout, machine);
    const double tflops = tflops_per_gpu(layout, prediction);
    print(fmt::format(" {:>7} {:>11.1f} {:>10.1f} {:>+7.1f}{}  {}, {}\n", layout.ranks(), tflops, row.tflops_per_gpu,
                      100 * (tflops / row.tflops_per_gpu - 1), parts_text(prediction), row.series, row.model));
    core::StudyRecord point = study.point(setting, row.series, layout, prediction);
    point.at = {{"gpus", static_cast<double>(layout.ranks())}};
    point.note = row.model;
    study.write(point);
    study.write_published(point, row.tflops_per_gpu, table.source);
  }
}

}  // namespace

int run_scaling(int argc, const char* const* argv, const program::Print& print) {
  const auto flags = parse_study<ScalingFlags>(
      argc, argv, "how far a layout scales: throughput per device, and what limits it.", kScalingFlags);
  Study study(flags, "scaling");
  if (!flags.published.empty()) {
    run_published(flags, study, print);
  } else {
    print("# simulated: " + setting_of(workload::parse_model(flags.model), simulator::load_machine(flags.machine)) +
          "\n");
    Curve curve(flags, study, print);
    if (flags.weak || !flags.strong) curve.run("weak");
    if (flags.strong || !flags.weak) curve.run("strong");
  }
  study.commit();
  return 0;
}

}  // namespace lockstep::simulate
