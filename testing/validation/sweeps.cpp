#include "testing/validation/validation.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "simulator/machine/json_fields.h"
#include "simulator/network/collective_time.h"
#include "simulator/network/nccl.h"
#include "simulator/prices/prices.h"

namespace lockstep::simulator {
namespace {

constexpr std::size_t kOneFittedOf = 4;

DeviceSpec device_of(const ProductSweep& sweep) {
  DeviceSpec device = load_machine(sweep.machine).device;
  device.product = {{1, sweep.share}};
  device.launch_us = sweep.other_us;
  return device;
}

double predicted_us(const DeviceSpec& device, const workload::Product& shape) {
  const kernels::GemmForward forward{.shape = {std::llround(shape.m), std::llround(shape.k), std::llround(shape.n)}};
  return static_cast<double>(kernel_ps(device, workload::kernel_call(forward, core::DType::bf16))) / 1e6;
}

double squared_errors(const ProductSweep& sweep) {
  double sum = 0;
  for (const ValidatedProduct& each : validate(std::span(&sweep, 1))) {
    if (each.fitted) sum += each.error() * each.error();
  }
  return sum;
}

}  // namespace

std::vector<ProductSweep> parse_product_sweeps(std::string_view json, const std::string& where) {
  JsonFields fields = JsonFields::of_text(json, where);
  std::vector<ProductSweep> found;
  for (JsonFields& each : fields.objects("sweeps")) {
    ProductSweep sweep;
    sweep.table = each.text("table");
    sweep.source = each.text("source");
    sweep.machine = each.text("machine");
    sweep.share = each.number("share", 0, 1);
    sweep.other_us = each.positive("other_us");
    for (JsonFields& product : each.objects("products")) {
      sweep.products.push_back(
          {{product.positive("m"), product.positive("n"), product.positive("k")}, product.positive("tflops")});
      product.done();
    }
    each.done();
    found.push_back(std::move(sweep));
  }
  fields.done();
  return found;
}

std::vector<ValidatedProduct> validate(std::span<const ProductSweep> sweeps) {
  std::vector<ValidatedProduct> all;
  for (const ProductSweep& sweep : sweeps) {
    const DeviceSpec device = device_of(sweep);
    for (std::size_t i = 0; i < sweep.products.size(); ++i) {
      const PublishedProduct& product = sweep.products[i];
      all.push_back({sweep.table, product, predicted_us(device, product.shape), i % kOneFittedOf == 0});
    }
  }
  return all;
}

// Pattern search by factors that shrink when no change helps.
ProductSweep refitted(ProductSweep sweep) {
  constexpr double kFirstStep = 0.2;
  constexpr double kLastStep = 1e-4;
  double least = squared_errors(sweep);
  for (double step = kFirstStep; step > kLastStep;) {
    bool better = false;
    for (double ProductSweep::*const number : {&ProductSweep::share, &ProductSweep::other_us}) {
      for (const double factor : {1 + step, 1 / (1 + step)}) {
        ProductSweep tried = sweep;
        tried.*number *= factor;
        const double sum = squared_errors(tried);
        if (sum >= least) continue;
        least = sum;
        sweep = std::move(tried);
        better = true;
        break;
      }
    }
    if (!better) step /= 2;
  }
  return sweep;
}

std::string product_table(std::span<const ProductSweep> sweeps) {
  std::string text =
      "| products | full waves, fitted | other time, fitted | shapes | mean error | largest error |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  for (const ProductSweep& sweep : sweeps) {
    const Score score = score_of(validate(std::span(&sweep, 1)));
    text += fmt::format("| {} | {:.0f} % of the peak | {:.1f} us | {} | {:.1f} % | {:.1f} % |\n", sweep.table,
                        100 * sweep.share, sweep.other_us, score.count, 100 * score.mean, 100 * score.max);
  }
  return text;
}

namespace {

schedules::Comm comm_of(JsonFields& fields) {
  const std::string name = fields.text("collective");
  for (const auto comm : {schedules::Comm::all_reduce, schedules::Comm::all_gather, schedules::Comm::reduce_scatter,
                          schedules::Comm::all_to_all}) {
    if (name == schedules::name_of(comm)) return comm;
  }
  fields.refuse("collective", name, "all_reduce all_gather reduce_scatter all_to_all");
}

NcclNumber number_named(JsonFields& fields, const std::string& name) {
  const auto* const found = std::find(kNcclNumbers.begin(), kNcclNumbers.end(), name);
  if (found == kNcclNumbers.end()) {
    fields.refuse("fitted", name, "start_us simple_step_us collective_efficiency ll128 last_copy nvls");
  }
  return static_cast<NcclNumber>(found - kNcclNumbers.begin());
}

CollectiveSweep read_sweep(JsonFields& fields) {
  CollectiveSweep sweep;
  sweep.table = fields.text("table");
  sweep.source = fields.text("source");
  sweep.machine = fields.text("machine");
  const schedules::Comm comm = comm_of(fields);
  const std::int64_t ranks = fields.integer("ranks", 2);
  const std::int64_t nodes = fields.has("nodes") ? fields.integer("nodes", 2) : 1;
  if (ranks % nodes != 0) fields.refuse("nodes", std::to_string(nodes), "divisors of the ranks");
  for (const auto& [bytes, us] : fields.pairs("us")) {
    if (bytes <= 0 || us <= 0) fields.refuse("us", std::to_string(us), "bytes and microseconds above 0");
    sweep.points.push_back({comm, ranks, bytes, us, nodes});
  }
  if (fields.has("fitted")) {
    for (const std::string& name : fields.texts("fitted")) sweep.fitted.push_back(number_named(fields, name));
    for (const auto& [first, factor] : fields.pairs("fitted_bytes")) {
      for (const CollectivePoint& point : sweep.points) {
        const double doublings = std::log(point.bytes / first) / std::log(factor);
        if (doublings > -1e-9 && std::abs(doublings - std::round(doublings)) < 1e-9) {
          sweep.fitted_bytes.push_back(point.bytes);
        }
      }
    }
  }
  fields.done();
  return sweep;
}

bool is_fitted(const CollectiveSweep& sweep, const CollectivePoint& point) {
  return std::find(sweep.fitted_bytes.begin(), sweep.fitted_bytes.end(), point.bytes) != sweep.fitted_bytes.end();
}

std::string size_text(double bytes) {
  constexpr double kKi = 1024;
  if (bytes >= kKi * kKi) return fmt::format("{:g} MiB", bytes / kKi / kKi);
  return bytes >= kKi ? fmt::format("{:g} KiB", bytes / kKi) : fmt::format("{:g} B", bytes);
}

std::string gpus_text(const CollectivePoint& of) {
  if (of.nodes == 1) return fmt::format("{} GPUs", of.ranks);
  return fmt::format("{} x {} GPUs", of.nodes, of.ranks / of.nodes);
}

// The score table: a row per number of GPUs of each table, and one per table.
std::string scores(std::span<const ValidatedCollective> all) {
  std::string text = "| collectives | sizes | mean error | largest error |\n| --- | --- | --- | --- |\n";
  std::string last;
  for (const ValidatedCollective& each : all) {
    const std::string title = each.table + gpus_text(each.of);
    if (title == last) continue;
    last = title;
    text += score_row(fmt::format("{}, {} of {}", each.table, schedules::name_of(each.of.comm), gpus_text(each.of)),
                      score_of(all, [&](const auto& other) { return other.table + gpus_text(other.of) == title; }));
  }
  return text + score_row("all", score_of(all));
}

// The faster protocol of ring and tree on 8 H100, by size.
std::string ring_and_tree() {
  const Machine machine = load_machine("dgx-h100");
  const std::vector<std::int64_t> members(machine.levels.size(), 8);
  std::string text = "| size | ring | tree | tree / ring | NCCL takes |\n| --- | --- | --- | --- | --- |\n";
  for (double bytes = 1024; bytes <= 1024.0 * 1024 * 1024; bytes *= 4) {
    const NcclCall call = nccl_call(schedules::Comm::all_reduce, bytes, members);
    const auto best_of = [&](CollectiveAlgorithm algorithm) {
      CollectivePrediction best = nccl_time(machine, call, members, {algorithm, Protocol::simple});
      for (const Protocol protocol : {Protocol::ll, Protocol::ll128}) {
        const CollectivePrediction other = nccl_time(machine, call, members, {algorithm, protocol});
        if (other.time_us() < best.time_us()) best = other;
      }
      return best;
    };
    const CollectivePrediction ring = best_of(CollectiveAlgorithm::ring);
    const CollectivePrediction tree = best_of(CollectiveAlgorithm::tree);
    const CollectivePrediction taken = best_collective(machine, call.comm, bytes, members);
    text += fmt::format("| {} | {:.1f} ({}) | {:.1f} ({}) | {:.2f} | {}, {:.1f} |\n", size_text(bytes), ring.time_us(),
                        name_of(ring.protocol), tree.time_us(), name_of(tree.protocol), tree.time_us() / ring.time_us(),
                        way_of(taken), taken.time_us());
  }
  return text;
}

}  // namespace

std::vector<CollectiveSweep> parse_sweeps(std::string_view json, const std::string& where) {
  JsonFields fields = JsonFields::of_text(json, where);
  std::vector<CollectiveSweep> sweeps;
  for (JsonFields& each : fields.objects("sweeps")) sweeps.push_back(read_sweep(each));
  fields.done();
  return sweeps;
}

std::vector<ValidatedCollective> validate(std::span<const CollectiveSweep> sweeps) {
  std::vector<ValidatedCollective> all;
  for (const CollectiveSweep& sweep : sweeps) {
    const Machine machine = load_machine(sweep.machine);
    for (const CollectivePoint& point : sweep.points) {
      const CollectivePrediction prediction = predicted(machine, point);
      all.push_back(
          {sweep.table, sweep.machine, point, way_of(prediction), prediction.time_us(), is_fitted(sweep, point)});
    }
  }
  return all;
}

Machine refitted(const CollectiveSweep& sweep) {
  std::vector<CollectivePoint> points;
  std::copy_if(sweep.points.begin(), sweep.points.end(), std::back_inserter(points),
               [&](const CollectivePoint& point) { return is_fitted(sweep, point); });
  return fit_nccl(load_machine(sweep.machine), points, sweep.fitted);
}

std::string collective_table(std::string_view name, std::span<const ValidatedCollective> all) {
  if (name == "collective_score") return scores(all);
  if (name == "ring_tree") return ring_and_tree();
  std::string text =
      "| collective | of | size | taken | published | predicted | error |\n| --- | --- | --- | --- | --- | --- | --- "
      "|\n";
  bool any = false;
  for (const ValidatedCollective& each : all) {
    if (each.table != name) continue;
    any = true;
    const std::string error = fmt::format("{:+.1f} %", 100 * each.error());
    text += fmt::format("| {} | {} | {} | {} | {:.1f} us | {:.1f} us | {} |\n", schedules::name_of(each.of.comm),
                        gpus_text(each.of), size_text(each.of.bytes), each.way, each.of.us, each.us,
                        each.fitted ? "fitted (" + error + ")" : error);
  }
  return any ? text : "";
}

}  // namespace lockstep::simulator
