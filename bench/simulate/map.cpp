// simulate map: the fastest kind of parallelism by model size and bandwidth of a link.
#include <algorithm>
#include <chrono>

#include <fmt/format.h>

#include "bench/program/progress.h"
#include "bench/simulate/simulate.h"
#include "core/error.h"
#include "core/ranks.h"
#include "simulator/machine/machine.h"
#include "simulator/predict/search.h"

namespace lockstep::simulate {
namespace {

using simulator::Fastest;
using simulator::FoundLayout;
using simulator::Machine;
using simulator::way_of;
using simulator::WaySearch;
using workload::Layout;
using workload::Model;

struct MapFlags : StudyFlags {
  MapFlags() { model = ""; }  // replaced by --models
  std::vector<std::string> models{"gpt3-125m", "gpt3-350m", "gpt3-760m",      "gpt3-1.3b",      "gpt3-2.7b",
                                  "gpt3-6.7b", "gpt3-13b",  "megatron-39.1b", "megatron-76.1b", "gpt3-175b"};
  std::vector<int> gpus{64};
  std::vector<double> links{0.5, 1, 2.5, 5, 12.5, 25, 50, 100, 200, 400};
  std::int64_t level = -1;  // default: the first level above a node
  std::int64_t batch = 512;
};

const std::array kMapFlags{
    program::FlagOf<MapFlags>{"--models", "gpt3-125m,...,gpt3-175b", "names of models",
                              [](MapFlags& f, const program::FlagValue& v) {
                                f.models = program::text_list(v);
                                for (const std::string& name : f.models) workload::parse_model(name);
                              }},
    program::FlagOf<MapFlags>{
        "--gpus", "64", "numbers of devices; one map for each",
        [](MapFlags& f, const program::FlagValue& v) { f.gpus = program::integer_list(v, 1, 1'000'000); }},
    program::FlagOf<MapFlags>{"--links", "0.5,1,2.5,5,12.5,25,50,100,200,400",
                              "link bandwidths in GB/s per device and direction, a list",
                              [](MapFlags& f, const program::FlagValue& v) {
                                f.links.clear();
                                for (const program::FlagValue& part : v.list()) f.links.push_back(part.number(0, 1e6));
                              }},
    program::FlagOf<MapFlags>{"--level", "1", "network level with these links; 0 is inside a node",
                              [](MapFlags& f, const program::FlagValue& v) { f.level = v.integer(0, 16); }},
    program::FlagOf<MapFlags>{"--batch", "512", "sequences per step",
                              [](MapFlags& f, const program::FlagValue& v) { f.batch = v.integer(1, 10'000'000); }},
};

struct Cell {
  double gbps = 0;
  Fastest fastest;
  std::string why;
};

struct Row {
  Model model;
  double least_memory_bytes = 0;
  std::int64_t legal = 0;
  std::vector<Cell> cells;
};

double margin_percent(const Cell& cell) {
  return 100 * (cell.fastest.best[1].prediction.step_s / cell.fastest.best[0].prediction.step_s - 1);
}

std::string winner_of(const Cell& cell) {
  return cell.fastest.best.empty() ? "" : std::string(way_of(cell.fastest.best.front().layout));
}

// Simpler ways that do not fit.
std::string too_large_text(const WaySearch& search, const Cell& cell, double capacity) {
  std::string text;
  for (const std::string_view way : simulator::ways()) {
    const double least = search.least_memory_bytes(way);
    if (!cell.fastest.best.empty() && way == winner_of(cell)) break;
    if (least <= capacity) continue;
    text += fmt::format("{}{} does not fit ({:.0f} GB)", text.empty() ? "" : ", ", way, least / 1e9);
  }
  return text;
}

std::string why_text(const WaySearch& search, const Cell& cell, double capacity) {
  const std::string too_large = too_large_text(search, cell, capacity);
  const auto with = [&](const std::string& text) { return too_large.empty() ? text : text + "; " + too_large; };
  const std::vector<FoundLayout>& best = cell.fastest.best;
  if (best.empty()) return too_large.empty() ? "no layout" : too_large;
  if (best.size() == 1) return with("nothing else fits");
  const double margin = margin_percent(cell);
  const std::string next(way_of(best[1].layout));
  if (margin <= 100 * simulator::kSameTime) {
    return with(fmt::format("{} takes as long ({:+.1f} %) within the accuracy of predictions, and {} is simpler", next,
                            margin, winner_of(cell)));
  }
  return with(
      fmt::format("{} is {:.1f} % slower: {}", next, margin, longer_part_text(best[0].prediction, best[1].prediction)));
}

std::vector<std::string> models_of(const MapFlags& flags) {
  return flags.model.empty() ? flags.models : std::vector<std::string>{flags.model};
}

// How much slower the next way is; "even" if that is below the accuracy of predictions.
std::string margin_text(const Cell& cell) {
  if (cell.fastest.best.empty()) return "";
  if (cell.fastest.best.size() == 1) return "alone";
  const double margin = margin_percent(cell);
  return margin <= 100 * simulator::kSameTime ? "even" : fmt::format("{:+.1f} %", margin);
}

class Map {
 public:
  Map(const MapFlags& flags, Study& study, const program::Print& print)
      : flags_(flags), study_(study), print_(print), machine_(simulator::load_machine(flags.machine)) {
    const std::int64_t last = static_cast<std::int64_t>(machine_.levels.size()) - 1;
    level_ = flags.level >= 0 ? flags.level : std::min<std::int64_t>(1, last);
    if (level_ > last) {
      throw core::usage_error(
          fmt::format("--level {}: {} has {} levels; allowed: 0 to {}", level_, machine_.name, last + 1, last));
    }
    links_ = flags.links;
    std::sort(links_.begin(), links_.end());
    for (const std::string& name : models_of(flags)) models_.push_back(workload::parse_model(name));
    std::stable_sort(models_.begin(), models_.end(),
                     [](const Model& a, const Model& b) { return parameters_of(a) < parameters_of(b); });
  }

  void run(std::int64_t gpus) {
    const auto begin = std::chrono::steady_clock::now();
    std::vector<Row> rows(models_.size());
    program::Progress progress("cells", models_.size() * links_.size());
    simulator::for_all(models_.size(), core::usable_cores(),
                       [&](std::size_t i) { rows[i] = row_of(models_[i], gpus, progress); });
    const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::int64_t simulated = 0;
    std::int64_t legal = 0;
    for (const Row& row : rows) {
      legal += row.legal;
      for (const Cell& cell : row.cells) simulated += cell.fastest.simulated;
    }
    print_(
        fmt::format("# simulated: {} devices of {}, {} sequences per step, links of {}\n# {} cells, {} layouts, {} "
                    "simulations in {:.1f} s\n",
                    gpus, machine_.name, flags_.batch, machine_.levels[static_cast<std::size_t>(level_)].name,
                    rows.size() * links_.size(), legal, simulated, wall_s));
    print_table(rows);
    for (const Row& row : rows) write(row, gpus);
  }

 private:
  Machine linked(double gbps) const { return with_number(machine_, fmt::format("levels.{}.gbps", level_), gbps); }

  Row row_of(const Model& model, std::int64_t gpus, program::Progress& progress) const {
    simulator::SearchSpace space;
    space.gpus = gpus;
    space.global_batch = flags_.batch;
    if (!flags_.layout.empty()) space.base = workload::parse_layout(flags_.layout);
    space.schedules = {"1f1b", "interleaved"};
    space.chunks = {2, 4};
    space.microbatches = {1, 4};
    WaySearch search(model, linked(links_.back()), space);
    Row row{model, search.least_memory_bytes(), search.legal(), {}};
    for (auto gbps = links_.rbegin(); gbps != links_.rend(); ++gbps) {
      Cell cell{*gbps, search.fastest_on(linked(*gbps)), ""};
      cell.why = why_text(search, cell, static_cast<double>(machine_.device.memory_bytes));
      row.cells.push_back(std::move(cell));
      progress.one_done();
    }
    std::reverse(row.cells.begin(), row.cells.end());
    return row;
  }

  void print_table(const std::vector<Row>& rows) const {
    constexpr int kWidth = 15;
    print_(fmt::format("#{:>15}", "GB/s"));
    for (const double gbps : links_) print_(fmt::format(" {:>{}}", fmt::format("{:g}", gbps), kWidth));
    print_("   (the fastest, and how much slower the second is)\n");
    for (const Row& row : rows) {
      std::string names = fmt::format(" {:>15}", row.model.name.substr(0, 15));
      std::string margins =
          fmt::format("#{:>15}", fmt::format("{:.3g}e9", static_cast<double>(parameters_of(row.model)) / 1e9));
      for (const Cell& cell : row.cells) {
        const std::string winner = winner_of(cell);
        names += fmt::format(" {:>{}}", winner.empty() ? "does not fit" : winner, kWidth);
        margins += fmt::format(" {:>{}}", margin_text(cell), kWidth);
      }
      print_(fmt::format("{}\n{}\n", names, margins));
    }
    print_("# Why, where the winner changes:\n");
    for (const Row& row : rows) {
      for (std::size_t i = 0; i < row.cells.size(); ++i) {
        const Cell& cell = row.cells[i];
        if (i > 0 && winner_of(cell) == winner_of(row.cells[i - 1])) continue;
        const std::string winner = winner_of(cell);
        print_(fmt::format("#   {} from {:g} GB/s: {}: {}\n", row.model.name, cell.gbps,
                           winner.empty() ? "nothing fits" : winner, cell.why));
      }
    }
  }

  void write(const Row& row, std::int64_t gpus) {
    const std::string setting =
        fmt::format("{} devices of {}, {} sequences per step", gpus, machine_.name, flags_.batch);
    for (const Cell& cell : row.cells) {
      core::StudyRecord point = study_.point(setting, "nothing fits");
      if (!cell.fastest.best.empty()) {
        const FoundLayout& best = cell.fastest.best.front();
        point = study_.point(setting, winner_of(cell), best.layout, best.prediction);
      }
      point.at = {{"parameters", static_cast<double>(parameters_of(row.model))},
                  {"gbps", cell.gbps},
                  {"gpus", static_cast<double>(gpus)}};
      point.fits = !cell.fastest.best.empty();
      point.best = point.fits;
      if (cell.fastest.best.size() > 1) point.values.emplace_back("margin_percent", margin_percent(cell));
      point.values.emplace_back("least_gb", row.least_memory_bytes / 1e9);
      point.note = row.model.name + ": " + cell.why;
      study_.write(point);
    }
  }

  const MapFlags& flags_;
  Study& study_;
  const program::Print& print_;
  Machine machine_;
  std::int64_t level_ = 0;
  std::vector<Model> models_;
  std::vector<double> links_;  // the slowest first
};

}  // namespace

int run_map(int argc, const char* const* argv, const program::Print& print) {
  const auto flags = parse_study<MapFlags>(argc, argv,
                                           "which kind of parallelism is fastest, by model size and bandwidth of a "
                                           "link. Each kind's best layout that fits counts; --layout has the options "
                                           "that all share.",
                                           kMapFlags);
  Study study(flags, "map");
  Map map(flags, study, print);
  for (const int gpus : flags.gpus) map.run(gpus);
  study.commit();
  return 0;
}

// simulate tp-boundary: tensor parallelism inside a node and beyond it; by default for nanotron's published runs,
// with the published values.
namespace {

struct BoundaryFlags : StudyFlags {
  BoundaryFlags() {
    model = "";
    machine = "dgx-h100";
    layout = "microbatch=4,batch=4,sp=yes";
  }
  std::vector<int> tp{2, 4, 8, 16, 32};
};

const std::array kBoundaryFlags{
    program::FlagOf<BoundaryFlags>{
        "--tp", "2,4,8,16,32", "tensor-parallel ranks, with --model",
        [](BoundaryFlags& f, const program::FlagValue& v) { f.tp = program::integer_list(v, 1, 1'000'000); }},
};

struct Point {
  workload::Model model;
  Layout layout;
  double published = 0;  // TFLOP/s per GPU; 0: none
};

// Without --model: nanotron's runs, whose microbatches grow with the ranks.
std::vector<Point> points_of(const BoundaryFlags& flags, const PublishedTable& published) {
  std::vector<Point> points;
  if (flags.model.empty()) {
    for (const PublishedRow& row : published.rows) {
      points.push_back({workload::parse_model(row.model), workload::parse_layout(row.layout), row.tflops_per_gpu});
      points.back().model.name = "a llama of 3.6e9 parameters";
    }
    return points;
  }
  for (const int tp : flags.tp) {
    points.push_back({workload::parse_model(flags.model), workload::parse_layout(flags.layout)});
    points.back().layout.tp = tp;
    if (const auto reason = why_invalid(points.back().model, points.back().layout); !reason.empty()) {
      throw core::usage_error("--tp " + std::to_string(tp) + ": " + reason);
    }
  }
  return points;
}

}  // namespace

int run_tp_boundary(int argc, const char* const* argv, const program::Print& print) {
  const auto flags = parse_study<BoundaryFlags>(
      argc, argv, "tensor parallelism inside a node and beyond it; without --model, nanotron's published runs.",
      kBoundaryFlags);
  const BoundaryFlags usual;
  if (flags.model.empty() && (flags.layout != usual.layout || flags.tp != usual.tp)) {
    throw core::usage_error("--layout and --tp require --model, as nanotron's own is used otherwise");
  }
  const simulator::Machine machine = simulator::load_machine(flags.machine);
  const PublishedTable published = published_table("nanotron-tp");
  const std::vector<Point> points = points_of(flags, published);
  const std::int32_t node = machine.levels.front().ranks;
  const std::string setting = setting_of(points.front().model, machine);
  Study study(flags, "tp_boundary");
  print(fmt::format("# simulated: {}; {} ranks share a node\n", setting, node));
  if (flags.model.empty()) print("# published, on H100 in nodes of 8: " + published.source + "\n");
  print(fmt::format("#{:>5} {:>10} {:>10} {:>8}{}\n#{:>5} {:>10} {:>10} {:>8}       (% of the step)\n", "tp",
                    "simulated", "published", "off", parts_columns_text(), "", "(TFLOP/s)", "(TFLOP/s)", "(%)"));
  double inside = 0;
  double beyond = 0;
  for (const Point& one : points) {
    const simulator::Prediction prediction = predict(one.model, one.layout, machine);
    const double tflops = tflops_per_gpu(one.layout, prediction);
    if (one.layout.tp <= node) inside = tflops;
    if (one.layout.tp > node && beyond == 0) beyond = tflops;
    print(fmt::format(" {:>5} {:>10.1f} {:>10} {:>8}{}\n", one.layout.tp, tflops,
                      one.published > 0 ? fmt::format("{:.1f}", one.published) : "",
                      one.published > 0 ? fmt::format("{:+.1f}", 100 * (tflops / one.published - 1)) : "",
                      parts_text(prediction)));
    core::StudyRecord point = study.point(setting, "tensor parallel", one.layout, prediction);
    point.at = {{"tp", one.layout.tp}, {"node", node}};
    study.write(point);
    if (one.published > 0) study.write_published(point, one.published, published.source);
  }
  if (inside > 0 && beyond > 0) {
    print(fmt::format("# just beyond the node {:.0f} TFLOP/s per GPU remain of {:.0f} inside it\n", beyond, inside));
  }
  study.commit();
  return 0;
}

}  // namespace lockstep::simulate
