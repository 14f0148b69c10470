// simulate tp-boundary: tensor parallelism inside a node and beyond it; by default for nanotron's published runs,
// beside the published values.
#include <fmt/format.h>

#include "bench/simulate/commands.h"
#include "bench/simulate/published.h"
#include "bench/simulate/study.h"
#include "core/error.h"

namespace lockstep::simulate {
namespace {

using workload::Layout;

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
      points.push_back({workload::parse_model(row.model), workload::parse_layout(row.layout), row.tflops_a_gpu});
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
    throw core::usage_error("--layout or --tp without --model, which uses nanotron's own; allowed: with --model");
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
    const simulator::Prediction made = predict(one.model, one.layout, machine);
    const double tflops = tflops_a_gpu(one.layout, made);
    if (one.layout.tp <= node) inside = tflops;
    if (one.layout.tp > node && beyond == 0) beyond = tflops;
    print(fmt::format(" {:>5} {:>10.1f} {:>10} {:>8}{}\n", one.layout.tp, tflops,
                      one.published > 0 ? fmt::format("{:.1f}", one.published) : "",
                      one.published > 0 ? fmt::format("{:+.1f}", 100 * (tflops / one.published - 1)) : "",
                      parts_text(made)));
    core::StudyRecord point = study.point(setting, "tensor parallel", one.layout, made);
    point.at = {{"tp", one.layout.tp}, {"node", node}};
    study.write(point);
    if (one.published == 0) continue;
    point.basis = "published";
    point.values = {{"tflops_a_gpu", one.published}};
    point.parts_ms.clear();
    point.source = published.source;
    study.write(point);
  }
  if (inside > 0 && beyond > 0) {
    print(fmt::format("# just beyond the node {:.0f} TFLOP/s per GPU remain of {:.0f} inside it\n", beyond, inside));
  }
  study.commit();
  return 0;
}

}  // namespace lockstep::simulate
