#include "testing/validation/validation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <numeric>
#include <string>

#include <fmt/format.h>

#include "core/error.h"
#include "simulator/machine/json_fields.h"
#include "simulator/predict/predict.h"
#include "simulator/prices/prices.h"
#include "workload/operations.h"

namespace lockstep::simulator {
namespace {

constexpr double kPsPerMs = 1e9;

// Prediction of a single layer.
schedules::StageCosts layer_costs(const workload::Model& model, const workload::Layout& layout,
                                  const Machine& machine) {
  workload::StageSlice slice;
  slice.layers = 1;
  const schedules::Schedule schedule = schedule_of(layout);
  const workload::Pricing pricing = pricing_of(model, layout, schedule, machine, Detail::pieces);
  return totals_of(work_of(model, layout, slice, pricing), price_in(model, layout, schedule, machine));
}

// Part of a layer: its operations from one kind to another.
struct LayerPart {
  std::string_view prefix;  // prefix of the measure's name
  workload::OperationKind first, last;
};
constexpr std::array kLayerParts{
    LayerPart{"experts_", workload::OperationKind::router, workload::OperationKind::unpermute},
    LayerPart{"attention_", workload::OperationKind::split_heads, workload::OperationKind::values},
};

workload::StageWork work_of_part(const workload::Model& model, const workload::Layout& layout, const Machine& machine,
                                 const LayerPart& part) {
  workload::StageSlice slice;
  slice.layers = 1;
  workload::Pricing pricing = pricing_of(model, layout, schedule_of(layout), machine, Detail::pieces);
  pricing.simplify = {};  // merged pieces would have one name
  workload::StageWork work = work_of(model, layout, slice, pricing);
  for (auto* pieces : {&work.recipe.forward, &work.recipe.backward, &work.recipe.input_gradient}) {
    std::erase_if(*pieces, [&](const schedules::Piece& piece) {
      const workload::OperationKind kind = workload::piece_named(piece.what).kind;
      return kind < part.first || kind > part.last;
    });
  }
  return work;
}

schedules::StageCosts part_costs(const workload::Model& model, const workload::Layout& layout, const Machine& machine,
                                 const LayerPart& part) {
  return totals_of(work_of_part(model, layout, machine, part), price_in(model, layout, schedule_of(layout), machine));
}

// True if a ring exchange takes no longer than the attention of a whole block.
bool is_hidden(workload::Model model, const workload::Layout& layout, const Machine& machine, std::int64_t tokens) {
  model.sequence = tokens * layout.cp;
  const CollectivePrice price = price_in(model, layout, schedule_of(layout), machine);
  std::int64_t block_ps = 0;
  std::int64_t exchange_ps = 0;
  for (const schedules::Piece& piece : work_of_part(model, layout, machine, kLayerParts[1]).recipe.forward) {
    const bool is_exchange = piece.op == schedules::Op::layer_collective;
    const std::int64_t ps = is_exchange ? price(piece.comm, piece.group, piece.amount).ps : piece.amount;
    std::int64_t& longest = is_exchange ? exchange_ps : block_ps;
    longest = std::max(longest, ps);
  }
  return exchange_ps <= block_ps;
}

double hidden_ktokens(const workload::Model& model, const workload::Layout& layout, const Machine& machine) {
  constexpr double kBlocks = 6;  // blocks that a rank holds at once: Liu et al. 2023, section 3
  std::int64_t most = 1;
  while (!is_hidden(model, layout, machine, most)) most *= 2;
  std::int64_t least = most / 2;
  while (most - least > 1) {
    const std::int64_t middle = least + (most - least) / 2;
    (is_hidden(model, layout, machine, middle) ? most : least) = middle;
  }
  return kBlocks * static_cast<double>(most) / 1e3;
}

double sent_nh(const workload::Model& model, const workload::Layout& layout) {
  double bytes = 0;
  for (const workload::Operation& op : layer_operations(model, layout)) {
    const workload::Exchange& exchange = op.forward_exchange;
    if (exchange.comm == schedules::Comm::none) continue;
    const double ranks = exchange.group == schedules::GroupKind::context ? layout.cp : layout.tp;
    bytes += exchange.comm == schedules::Comm::shift ? exchange.bytes : exchange.bytes * (ranks - 1) / ranks;
  }
  return bytes / static_cast<double>(core::size_of(layout.compute)) /
         static_cast<double>(layout.microbatch_size * model.sequence * model.hidden);
}

Machine ideal_machine(double tflops, double gbps) {
  constexpr double kNoLimit = 1e9;
  Machine machine;
  machine.name = "ideal";
  machine.device = {.name = "ideal",
                    .matrix_tflops = tflops,
                    .vector_tflops = kNoLimit,
                    .memory_gbps = kNoLimit,
                    .product = {{1, 1}},
                    .attention = {{1, 1}},
                    .memory = {{1, 1}}};
  machine.levels = {{.name = "link", .ranks = 1 << 20, .gbps = gbps}};
  return machine;
}

double tflops_per_gpu(const workload::Model& model, const workload::Layout& layout, const Prediction& prediction) {
  const double tokens = static_cast<double>(layout.global_batch() * model.sequence);
  const double flops = training_flops(model, tokens, layout.recompute == workload::Recompute::full);
  return flops / prediction.step_s / static_cast<double>(layout.ranks()) / 1e12;
}

}  // namespace

ValidationCases parse_cases(std::string_view json, const std::string& where) {
  JsonFields fields = JsonFields::of_text(json, where);
  ValidationCases found;
  found.machine = fields.text("machine");
  for (JsonFields& each : fields.objects("cases")) {
    ValidationCase row;
    row.table = each.text("table");
    row.machine = each.has("machine") ? each.text("machine") : found.machine;
    if (each.has("grid")) row.grid = each.text("grid");
    row.title = each.text("title");
    row.model = each.text("model");
    row.layout = each.text("layout");
    row.measure = each.text("measure");
    row.published = each.positive("published");
    if (each.has("formula")) row.is_formula = each.yes_or_no("formula");
    if (each.has("ideal_tflops")) {
      row.ideal_tflops = each.positive("ideal_tflops");
      row.ideal_gbps = each.positive("ideal_gbps");
    }
    if (each.has("product_factor")) row.product_factor = each.positive("product_factor");
    if (each.has("fp8_factor")) row.fp8_factor = each.positive("fp8_factor");
    row.fitted = each.yes_or_no("fitted");
    each.done();
    found.cases.push_back(std::move(row));
  }
  fields.done();
  return found;
}

std::vector<ValidationCase> ValidationCases::on_machine() const {
  std::vector<ValidationCase> found;
  std::copy_if(cases.begin(), cases.end(), std::back_inserter(found),
               [&](const ValidationCase& each) { return each.machine == machine; });
  return found;
}

Validated validate(const ValidationCase& of, const Machine& machine) {
  const workload::Model model = workload::parse_model(of.model);
  const workload::Layout layout = workload::parse_layout(of.layout);
  if (of.measure == "step_s") return {of, predict(model, layout, machine).step_s};
  if (of.measure == "tflops_per_gpu") return {of, tflops_per_gpu(model, layout, predict(model, layout, machine))};
  if (of.measure == "hidden_ktokens") return {of, hidden_ktokens(model, layout, machine)};
  if (of.measure == "sent_nh") return {of, sent_nh(model, layout)};
  const auto* const part = std::find_if(kLayerParts.begin(), kLayerParts.end(),
                                        [&](const LayerPart& each) { return of.measure.starts_with(each.prefix); });
  const bool is_part = part != kLayerParts.end();
  const std::string measure = is_part ? of.measure.substr(part->prefix.size()) : of.measure;
  const schedules::StageCosts layer =
      is_part ? part_costs(model, layout, machine, *part) : layer_costs(model, layout, machine);
  const double forward_ms = static_cast<double>(layer.forward_ps) / kPsPerMs;
  const double backward_ms = static_cast<double>(layer.input_gradient_ps + layer.weight_gradient_ps) / kPsPerMs;
  if (measure == "forward_ms") return {of, forward_ms};
  if (measure == "backward_ms") return {of, backward_ms};
  if (measure == "both_ms") return {of, forward_ms + backward_ms};
  throw core::usage_error(
      "validation: measure '" + of.measure +
      "' is not known; allowed: step_s tflops_per_gpu hidden_ktokens sent_nh forward_ms backward_ms both_ms, experts_ "
      "or attention_ before these three");
}

std::vector<Validated> validate(std::span<const ValidationCase> cases) {
  std::vector<Validated> all;
  for (const ValidationCase& each : cases) {
    Machine machine = each.ideal_tflops > 0 ? ideal_machine(each.ideal_tflops, each.ideal_gbps)
                                            : scaled(load_machine(each.machine), each.product_factor);
    machine.device.fp8_tflops *= each.fp8_factor / each.product_factor;
    all.push_back(validate(each, machine));
  }
  return all;
}

std::vector<Choice> choices_of(std::span<const Validated> all) {
  std::map<std::string, Choice> of_grid;
  for (const Validated& each : all) {
    if (each.of.grid.empty()) continue;
    LOCKSTEP_CHECK(each.of.measure == "step_s", "cases of a grid have times of steps");
    Choice& choice = of_grid[each.of.grid];
    if (choice.chosen == nullptr || each.predicted < choice.chosen->predicted) choice.chosen = &each;
    if (choice.best == nullptr || each.of.published < choice.best->of.published) choice.best = &each;
  }
  std::vector<Choice> choices;
  for (const auto& [grid, choice] : of_grid) choices.push_back(choice);
  return choices;
}

namespace {

void scale(EfficiencyCurve& curve, double factor) {
  for (EfficiencyPoint& point : curve) point.share = std::min(1.0, point.share * factor);
}

// One case per run that the machine is fitted to, however many of its times are published: the split of a layer's time
// between forward and backward depends more on collectives than on products.
std::vector<double> errors_of(std::span<const ValidationCase> cases, const Machine& machine, double factor) {
  const Machine tried = scaled(machine, factor);
  std::map<std::string, std::vector<double>> of_runs;
  for (const ValidationCase& each : cases) {
    if (each.fitted) of_runs[each.model + " " + each.layout].push_back(validate(each, tried).error());
  }
  std::vector<double> errors;
  for (const auto& [run, of_run] : of_runs) {
    errors.push_back(std::accumulate(of_run.begin(), of_run.end(), 0.0) / static_cast<double>(of_run.size()));
  }
  return errors;
}

// One Gauss-Newton step: least squares of errors + slopes x change.
double improved(std::span<const ValidationCase> cases, const Machine& machine, double at) {
  constexpr double kStep = 1e-3;
  const std::vector<double> here = errors_of(cases, machine, at);
  const std::vector<double> shifted = errors_of(cases, machine, at + kStep);
  double squares = 0;
  double products = 0;
  for (std::size_t i = 0; i < here.size(); ++i) {
    const double slope = (shifted[i] - here[i]) / kStep;
    squares += slope * slope;
    products += slope * here[i];
  }
  return squares > 0 ? at - products / squares : at;
}

}  // namespace

Machine scaled(Machine machine, double product_factor) {
  scale(machine.device.product, product_factor);
  scale(machine.device.attention, product_factor);
  return machine;
}

double fit_product_share(std::span<const ValidationCase> cases, const Machine& machine) {
  constexpr int kRounds = 8;
  double factor = 1;
  for (int round = 0; round < kRounds; ++round) factor = improved(cases, machine, factor);
  return factor;
}

namespace {

struct Measure {
  std::string_view name;
  std::string_view unit;
  int digits;
};
constexpr std::array kMeasures{
    Measure{"experts_forward_ms", "ms forward", 2},   Measure{"experts_backward_ms", "ms backward", 2},
    Measure{"tflops_per_gpu", "TFLOP/s", 0},          Measure{"forward_ms", "ms forward", 1},
    Measure{"backward_ms", "ms backward", 1},         Measure{"step_s", "s", 2},
    Measure{"attention_forward_ms", "ms forward", 2}, Measure{"attention_both_ms", "ms forward and backward", 1},
    Measure{"hidden_ktokens", "thousand tokens", 1},  Measure{"sent_nh", "N h", 4}};

std::string number(double value, const std::string& measure) {
  for (const Measure& known : kMeasures) {
    if (known.name == measure) return fmt::format("{:.{}f} {}", value, known.digits, known.unit);
  }
  return fmt::format("{}", value);
}

std::string percent(double share) {
  return fmt::format("{:+.1f} %", 100 * share);
}

constexpr std::size_t kPageColumns = 120;

// Lines of a case's layout below its title, broken after a comma if a line of the page would become too long.
std::string layout_lines(const ValidationCase& of) {
  std::string text = of.title + "\n";
  std::string_view rest = of.layout;
  while (!rest.empty()) {
    std::size_t end = rest.size();
    if (end > kPageColumns - 2) end = rest.rfind(',', kPageColumns - 3) + 1;
    text += fmt::format("  {}\n", rest.substr(0, end));
    rest.remove_prefix(end);
  }
  return text;
}

std::string table_of(std::string_view name, std::span<const Validated> all) {
  std::string rows;
  std::string layouts;
  for (const Validated& each : all) {
    if (each.of.table != name) continue;
    rows += fmt::format("| {} | {} | {} | {} |\n", each.of.title, number(each.of.published, each.of.measure),
                        number(each.predicted, each.of.measure),
                        each.of.fitted ? "fitted (" + percent(each.error()) + ")" : percent(each.error()));
    layouts += layout_lines(each.of);
  }
  if (rows.empty()) throw core::usage_error("validation: no cases of table '" + std::string(name) + "'");
  return "| case | published | predicted | error |\n| --- | --- | --- | --- |\n" + rows + "\nTheir layouts:\n```\n" +
         layouts + "```\n";
}

std::string regrets(std::span<const Validated> all) {
  std::string text = "| grid | chosen | published | best published | regret |\n| --- | --- | --- | --- | --- |\n";
  for (const Choice& choice : choices_of(all)) {
    text += fmt::format("| {} | {} | {} | {} | {:.1f} % |\n", choice.chosen->of.grid, choice.chosen->of.title,
                        number(choice.chosen->of.published, "step_s"), number(choice.best->of.published, "step_s"),
                        100 * choice.regret());
  }
  return text;
}

std::string scores(std::span<const Validated> all) {
  std::string text = "| table | cases | mean error | largest error |\n| --- | --- | --- | --- |\n";
  std::vector<std::string> tables;
  for (const Validated& each : all) {
    if (tables.empty() || tables.back() != each.of.table) tables.push_back(each.of.table);
  }
  for (const std::string& table : tables) {
    text += score_row(table, score_of(all, [&](const Validated& each) { return each.of.table == table; }));
  }
  return text + score_row("all", score_of(all, [](const Validated& each) { return !each.of.is_formula; }));
}

}  // namespace

std::string score_row(std::string_view title, const Score& score) {
  return fmt::format("| {} | {} | {:.1f} % | {:.1f} % |\n", title, score.count, 100 * score.mean, 100 * score.max);
}

std::string with_tables(const std::string& page, std::span<const Validated> all,
                        std::span<const ValidatedCollective> collectives, std::span<const ProductSweep> products) {
  constexpr std::string_view kBegin = "<!-- table ";
  constexpr std::string_view kName = " -->\n";
  constexpr std::string_view kEnd = "<!-- end -->";
  std::string result;
  std::size_t at = 0;
  while (true) {
    const std::size_t begin = page.find(kBegin, at);
    if (begin == std::string::npos) return result + page.substr(at);
    const std::size_t name = begin + kBegin.size();
    const std::size_t body = page.find(kName, name);
    const std::size_t end = page.find(kEnd, name);
    if (body == std::string::npos || end == std::string::npos || end < body) {
      throw core::usage_error("validation: a table of the page has no end; allowed: <!-- table NAME --> ... " +
                              std::string(kEnd));
    }
    const std::string which = page.substr(name, body - name);
    const std::string collective = collective_table(which, collectives);
    result += page.substr(at, body + kName.size() - at);
    if (which == "score") {
      result += scores(all);
    } else if (which == "regret") {
      result += regrets(all);
    } else if (which == "products") {
      result += product_table(products);
    } else {
      result += collective.empty() ? table_of(which, all) : collective;
    }
    at = end;
  }
}

}  // namespace lockstep::simulator
