#include "bench/simulate/simulate.h"

#include <algorithm>

#include <fmt/format.h>

#include "bench/program/run_records.h"
#include "core/error.h"
#include "simulator/machine/json_fields.h"

namespace lockstep::simulate {
namespace {

PublishedTable weak() {
  PublishedTable table{"sc21-weak", "selene", "Narayanan et al. 2021, arXiv:2104.04473, table 1", {}};
  auto file = simulator::JsonFields::of_text(validation_cases(), "cases.json");
  for (auto& run : file.objects("cases")) {
    if (run.text("table") == "sc21" && run.text("measure") == "tflops_per_gpu") {
      table.rows.push_back({"models grow with GPUs", run.text("model"), run.text("layout"), run.positive("published")});
    }
  }
  return table;
}

// nanotron's is a Llama model of 3.6e9 parameters. Its vocabulary follows from the published TFLOP/s and tokens/s; one
// microbatch per step is assumed.
std::vector<PublishedTable> all() {
  std::vector<PublishedTable> tables{weak()};
  auto file = simulator::JsonFields::of_text(published_runs(), "published.json");
  for (auto& table : file.objects("tables")) {
    tables.push_back({table.text("name"), table.text("machine"), table.text("source"), {}});
    for (auto& run : table.objects("runs")) {
      tables.back().rows.push_back(
          {run.text("series"), run.text("model"), run.text("layout"), run.positive("tflops_per_gpu")});
    }
  }
  return tables;
}

}  // namespace

PublishedTable published_table(std::string_view name) {
  std::string names;
  for (PublishedTable& table : all()) {
    if (table.name == name) return table;
    names += " " + table.name;
  }
  throw core::usage_error("'" + std::string(name) + "' is not a published table; allowed:" + names);
}

namespace {

using schedules::Breakdown;
using simulator::Prediction;

struct PartColumn {
  const char* name;
  std::vector<std::string> parts;  // names of program::named_parts()
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

const Breakdown& busiest(const Prediction& prediction) {
  return prediction.parts[prediction.busiest];
}

constexpr const char* kGroup = "Prediction";

}  // namespace

std::string model_text(const program::FlagValue& value) {
  return value.checked_by(workload::parse_model);
}

std::string layout_text(const program::FlagValue& value) {
  if (value.text.empty()) throw value.refused("empty", "fields such as tp=8,pp=4,dp=2,batch=64 (simulate --list)");
  return value.checked_by(workload::parse_layout);
}

std::string machine_text(const program::FlagValue& value) {
  return value.checked_by(simulator::load_machine);
}

void declare_study(program::CommandLine& line, const StudyFlags& defaults) {
  line.add("--model", defaults.model, "a name, or fields such as hidden=4096,layers=32,heads=32; simulate --list",
           kGroup);
  line.add("--layout", defaults.layout, "how the step is split; simulate --list shows the fields", kGroup);
  line.add("--machine", defaults.machine, "a name, or a file (docs/machine_format.md)", kGroup);
  line.add("--json", "", "file for records (docs/record_format.md)", "Output");
}

void read_study(const program::CommandLine& line, StudyFlags& flags) {
  if (const auto value = line.value("--model")) flags.model = model_text(*value);
  if (const auto value = line.value("--layout")) flags.layout = layout_text(*value);
  if (const auto value = line.value("--machine")) flags.machine = machine_text(*value);
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
                               const Prediction& prediction) const {
  core::StudyRecord made_point = point(setting, series);
  made_point.layout = text_of(layout);
  made_point.values = {{"step_ms", prediction.step_s * 1e3},
                       {"tokens_per_s", prediction.tokens_per_s},
                       {"tflops_per_gpu", tflops_per_gpu(layout, prediction)},
                       {"memory_gb", prediction.memory[prediction.fullest].total() / 1e9}};
  made_point.parts_ms = parts_ms(prediction);
  made_point.fits = prediction.fits;
  return made_point;
}

void Study::write_published(core::StudyRecord point, double tflops_per_gpu, const std::string& source) {
  point.basis = "published";
  point.values = {{"tflops_per_gpu", tflops_per_gpu}};
  point.parts_ms.clear();
  point.source = source;
  write(point);
}

std::string setting_of(const workload::Model& model, const simulator::Machine& machine) {
  return model.name + " on " + machine.name;
}

double percent_of_step(double part_ps, const Prediction& prediction) {
  return 100 * part_ps / (prediction.step_s * 1e12);
}

core::NamedNumbers parts_ms(const Prediction& prediction) {
  core::NamedNumbers parts;
  for (const auto& [name, ps] : program::named_parts(busiest(prediction))) {
    parts.emplace_back(name, static_cast<double>(ps) / kPsPerMs);
  }
  return parts;
}

core::NamedNumbers longer_by_ms(const Prediction& from, const Prediction& to) {
  const auto before = program::named_parts(busiest(from));
  core::NamedNumbers longer;
  for (const auto& [name, ps] : program::named_parts(busiest(to))) {
    longer.emplace_back(name, static_cast<double>(ps - before[longer.size()].second) / kPsPerMs);
  }
  return longer;
}

double tflops_per_gpu(const workload::Layout& layout, const Prediction& prediction) {
  return prediction.hardware_flops / prediction.step_s / static_cast<double>(layout.ranks()) / 1e12;
}

std::string longer_part_text(const Prediction& from, const Prediction& to) {
  const core::NamedNumbers longer = longer_by_ms(from, to);
  const auto [name, ms] =
      *std::max_element(longer.begin(), longer.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return ms <= 0 ? "no part is longer" : fmt::format("{} {:+.1f} ms", name, ms);
}

std::string grown_part_text(const Prediction& from, const Prediction& to) {
  const auto a = program::named_parts(busiest(from));
  const auto b = program::named_parts(busiest(to));
  const auto percent = [](std::int64_t ps, const Prediction& prediction) {
    return percent_of_step(static_cast<double>(ps), prediction);
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

std::string parts_text(const Prediction& prediction) {
  const auto parts = program::named_parts(busiest(prediction));
  std::string text;
  for (const PartColumn& column : part_columns()) {
    double ps = 0;
    for (const auto& [name, part_ps] : parts) {
      for (const std::string& wanted : column.parts) ps += wanted == name ? static_cast<double>(part_ps) : 0;
    }
    text += fmt::format(" {:>9.2f}", percent_of_step(ps, prediction));
  }
  return text;
}

}  // namespace lockstep::simulate
