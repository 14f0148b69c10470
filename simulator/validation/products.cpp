#include "simulator/validation/products.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "simulator/machine/json_fields.h"
#include "simulator/prices/kernel_price.h"
#include "simulator/validation/validation.h"

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

Score score_of(std::span<const ValidatedProduct> all) {
  Score score;
  double sum = 0;
  for (const ValidatedProduct& each : all) {
    if (each.fitted) continue;
    ++score.count;
    sum += std::abs(each.error());
    score.max = std::max(score.max, std::abs(each.error()));
  }
  if (score.count > 0) score.mean = sum / static_cast<double>(score.count);
  return score;
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

}  // namespace lockstep::simulator
