#include "simulator/validation/validation.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>

#include "core/error.h"
#include "simulator/machine/json_fields.h"
#include "simulator/predict/predict.h"
#include "simulator/prices/collective_price.h"
#include "simulator/validation/fit.h"
#include "workload/operations.h"

namespace lockstep::simulator {
namespace {

constexpr double kPsPerMs = 1e9;

// One layer on its own.
schedules::StageCosts layer_costs(const workload::Model& model, const workload::Layout& layout,
                                  const Machine& machine) {
  workload::StageSlice slice;
  slice.layers = 1;
  const schedules::Schedule schedule = schedule_of(layout);
  const workload::Pricing pricing = pricing_of(model, layout, schedule, machine, Detail::pieces);
  return totals_of(work_of(model, layout, slice, pricing), price_in(model, layout, schedule, machine),
                   machine.taken_by_collectives());
}

// The part of a layer from the router to the sum of its experts.
schedules::StageCosts mixture_costs(const workload::Model& model, const workload::Layout& layout,
                                    const Machine& machine) {
  workload::StageSlice slice;
  slice.layers = 1;
  const schedules::Schedule schedule = schedule_of(layout);
  workload::Pricing pricing = pricing_of(model, layout, schedule, machine, Detail::pieces);
  pricing.simplify = {};  // pieces that are put together have one name
  workload::StageWork work = work_of(model, layout, slice, pricing);
  for (auto* pieces : {&work.recipe.forward, &work.recipe.backward, &work.recipe.input_gradient}) {
    std::erase_if(*pieces, [](const schedules::Piece& piece) {
      const workload::OperationKind kind = workload::piece_named(piece.what).kind;
      return kind < workload::OperationKind::router || kind > workload::OperationKind::unpermute;
    });
  }
  return totals_of(work, price_in(model, layout, schedule, machine), machine.taken_by_collectives());
}

double tflops_a_gpu(const workload::Model& model, const workload::Layout& layout, const Prediction& made) {
  const double tokens = static_cast<double>(layout.global_batch() * model.sequence);
  const double flops = training_flops(model, tokens, layout.recompute == workload::Recompute::full);
  return flops / made.step_s / static_cast<double>(layout.ranks()) / 1e12;
}

}  // namespace

ValidationCases parse_cases(std::string_view json, const std::string& where) {
  JsonFields fields = JsonFields::of_text(json, where);
  ValidationCases found;
  found.machine = fields.text("machine");
  for (JsonFields& each : fields.objects("cases")) {
    ValidationCase one;
    one.table = each.text("table");
    one.machine = each.has("machine") ? each.text("machine") : found.machine;
    if (each.has("grid")) one.grid = each.text("grid");
    one.title = each.text("title");
    one.model = each.text("model");
    one.layout = each.text("layout");
    one.measure = each.text("measure");
    one.published = each.positive("published");
    if (each.has("product_factor")) one.product_factor = each.positive("product_factor");
    if (each.has("fp8_factor")) one.fp8_factor = each.positive("fp8_factor");
    one.fitted = each.yes_or_no("fitted");
    each.done();
    found.cases.push_back(std::move(one));
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
  if (of.measure == "tflops_a_gpu") return {of, tflops_a_gpu(model, layout, predict(model, layout, machine))};
  constexpr std::string_view kOfExperts = "experts_";  // before a measure of a layer
  const bool of_experts = of.measure.starts_with(kOfExperts);
  const std::string measure = of_experts ? of.measure.substr(kOfExperts.size()) : of.measure;
  const schedules::StageCosts layer =
      of_experts ? mixture_costs(model, layout, machine) : layer_costs(model, layout, machine);
  if (measure == "forward_ms") return {of, static_cast<double>(layer.forward_ps) / kPsPerMs};
  if (measure == "backward_ms") {
    return {of, static_cast<double>(layer.input_gradient_ps + layer.weight_gradient_ps) / kPsPerMs};
  }
  throw core::usage_error(
      "validation: measure '" + of.measure +
      "' is not known; allowed: step_s tflops_a_gpu forward_ms backward_ms, experts_ before these two");
}

std::vector<Validated> validate(std::span<const ValidationCase> cases) {
  std::vector<Validated> all;
  for (const ValidationCase& each : cases) {
    Machine machine = scaled(load_machine(each.machine), each.product_factor);
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

Score score_of(std::span<const Validated> all) {
  Score score;
  double sum = 0;
  for (const Validated& each : all) {
    if (each.of.fitted) continue;
    ++score.count;
    sum += std::abs(each.error());
    score.max = std::max(score.max, std::abs(each.error()));
  }
  if (score.count > 0) score.mean = sum / static_cast<double>(score.count);
  return score;
}

}  // namespace lockstep::simulator
