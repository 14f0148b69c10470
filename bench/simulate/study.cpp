#include "bench/simulate/study.h"

#include <fmt/format.h>

#include "bench/pipeline/parts.h"
#include "bench/simulate/records.h"

namespace lockstep::simulate {
namespace {

using schedules::Breakdown;
using simulator::Prediction;

struct PartColumn {
  const char* name;
  std::vector<std::string> parts;  // names of pipeline::named_parts()
};

const std::vector<PartColumn>& part_columns() {
  static const std::vector<PartColumn> kColumns{{"compute", {"forward", "backward", "recompute"}},
                                                {"tensor", {"exposed_tensor"}},
                                                {"stages", {"exposed_pipeline"}},
                                                {"gather", {"exposed_gather"}},
                                                {"reduce", {"exposed_reduce"}},
                                                {"bubble", {"bubble"}},
                                                {"optimizer", {"optimizer"}}};
  return kColumns;
}

const Breakdown& busiest(const Prediction& made) {
  return made.parts[made.busiest];
}

std::string given(const program::FlagValue& value) {
  if (value.text.empty()) throw value.refused("empty", "a name or a file");
  return value.text;
}

constexpr const char* kGroup = "Prediction";

}  // namespace

void declare_study(program::CommandLine& line, const StudyFlags& defaults) {
  line.add("--model", defaults.model, "a name, or numbers such as hidden=4096,layers=32,heads=32; simulate --list",
           kGroup);
  line.add("--layout", defaults.layout, "how the step is split; simulate --list shows the fields", kGroup);
  line.add("--machine", defaults.machine, "a name, or a file (docs/machine_format.md)", kGroup);
  line.add("--json", "", "file for records (docs/record_format.md)", "Output");
}

void read_study(const program::CommandLine& line, StudyFlags& flags) {
  if (const auto value = line.value("--model")) flags.model = given(*value);
  if (const auto value = line.value("--layout")) flags.layout = value->text;
  if (const auto value = line.value("--machine")) flags.machine = given(*value);
  if (const auto value = line.value("--json")) flags.json_file = program::file_name(*value);
}

Study::Study(const program::Invocation& flags, std::string name)
    : name_(std::move(name)), writer_(flags.json_file), run_(run_record(flags)) {
  writer_.write(run_);
}

core::StudyRecord Study::point(const std::string& setting, const std::string& series) const {
  core::StudyRecord point;
  point.run = run_.run;
  point.program = run_.program;
  point.study = name_;
  point.setting = setting;
  point.series = series;
  return point;
}

core::StudyRecord Study::point(const std::string& setting, const std::string& series, const workload::Layout& layout,
                               const Prediction& made) const {
  core::StudyRecord made_point = point(setting, series);
  made_point.layout = text_of(layout);
  made_point.values = {{"step_ms", made.step_s * 1e3},
                       {"tokens_per_s", made.tokens_per_s},
                       {"tflops_a_gpu", tflops_a_gpu(layout, made)},
                       {"memory_gb", made.memory[made.fullest].total() / 1e9}};
  for (const auto& [name, ps] : pipeline::named_parts(busiest(made))) {
    made_point.parts_ms.emplace_back(name, static_cast<double>(ps) / 1e9);
  }
  made_point.fits = made.fits;
  return made_point;
}

std::string setting_of(const workload::Model& model, const simulator::Machine& machine) {
  return model.name + " on " + machine.name;
}

double tflops_a_gpu(const workload::Layout& layout, const Prediction& made) {
  return made.hardware_flops / made.step_s / static_cast<double>(layout.ranks()) / 1e12;
}

std::string longer_part_text(const Prediction& from, const Prediction& to) {
  const auto a = pipeline::named_parts(busiest(from));
  const auto b = pipeline::named_parts(busiest(to));
  std::size_t most = 0;
  const auto growth = [&](std::size_t i) { return b[i].second - a[i].second; };
  for (std::size_t i = 1; i < a.size(); ++i) most = growth(i) > growth(most) ? i : most;
  if (growth(most) <= 0) return "no part is longer";
  return fmt::format("{} {:+.1f} ms", a[most].first, static_cast<double>(growth(most)) / 1e9);
}

std::string grown_part_text(const Prediction& from, const Prediction& to) {
  const auto a = pipeline::named_parts(busiest(from));
  const auto b = pipeline::named_parts(busiest(to));
  const auto percent = [](std::int64_t ps, const Prediction& made) {
    return 100 * static_cast<double>(ps) / (made.step_s * 1e12);
  };
  std::size_t most = 0;
  const auto growth = [&](std::size_t i) { return percent(b[i].second, to) - percent(a[i].second, from); };
  for (std::size_t i = 1; i < a.size(); ++i) most = growth(i) > growth(most) ? i : most;
  return fmt::format("{}, from {:.1f} to {:.1f} % of the step", a[most].first, percent(a[most].second, from),
                     percent(b[most].second, to));
}

std::string parts_columns_text() {
  std::string text;
  for (const PartColumn& column : part_columns()) text += fmt::format(" {:>9}", column.name);
  return text;
}

std::string parts_text(const Prediction& made) {
  const auto parts = pipeline::named_parts(busiest(made));
  std::string text;
  for (const PartColumn& column : part_columns()) {
    double ps = 0;
    for (const auto& [name, part_ps] : parts) {
      for (const std::string& wanted : column.parts) ps += wanted == name ? static_cast<double>(part_ps) : 0;
    }
    text += fmt::format(" {:>9.2f}", 100 * ps / (made.step_s * 1e12));
  }
  return text;
}

}  // namespace lockstep::simulate
