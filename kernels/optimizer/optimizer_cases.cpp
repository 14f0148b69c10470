#include "kernels/registry.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/base/kernel_case.h"
#include "kernels/optimizer/optimizer.h"

namespace lockstep::kernels {
namespace {

using core::DType;
using Draws = std::map<std::string, Draw>;

const Draw kClip{.kind = Draw::Kind::positive, .scale = 1};

// A step late in training: no correction is near zero.
KernelCase scheduled_case(DType dtype) {
  const OptimizerStep args{
      .count = 1031, .narrow_weights = dtype != DType::f32, .scheduled = true, .numbers = {.decay = 0.1F}};
  KernelCase kernel_case = case_of(shaped(args, dtype), "N1031_scheduled");
  kernel_case.derive = [args](ReferenceData<double>& data) {
    const auto schedule = optimizer_schedule(args.kind, {.rate = 0.0625F}, 7);
    std::copy(schedule.begin(), schedule.end(), data["schedule"].begin());
  };
  return kernel_case;
}

// The norm was infinite or NaN: nothing changes.
KernelCase skipped_case(OptimizerKind kind, double clip) {
  KernelCase kernel_case = make_case(OptimizerStep{.count = 131, .kind = kind},
                                     {.shape = fmt::format("N131_clip{}", clip), .dtype = DType::f32});
  kernel_case.derive = [clip](ReferenceData<double>& data) { data["clip"][0] = clip; };
  return kernel_case;
}

void add_of_length(std::vector<KernelCase>& cases, std::int64_t count, DType dtype, const std::string& shape) {
  const bool narrow = dtype != DType::f32;
  for (const OptimizerKind kind : kOptimizerKinds) {
    const OptimizerStep step{
        .count = count, .kind = kind, .narrow_weights = narrow, .numbers = {.decay = 0.1F}, .step = 10};
    cases.push_back(case_of(shaped(step, dtype), shape));
  }
  cases.push_back(case_of(shaped(SumOfSquares{.count = count}, dtype), shape));
}

}  // namespace

KernelCase case_of(const OptimizerStep& args, std::string shape, const Draw& weights) {
  const DType dtype = args.narrow_weights ? args.weights.dtype : args.grad.dtype;
  if (shape.empty()) shape = fmt::format("N{}", args.count);
  const Draws draws{{"grad", {.scale = 0.01}},
                    {"clip", kClip},
                    {"master", weights},
                    {"m", {.scale = 0.01}},
                    {"v", {.kind = Draw::Kind::positive, .scale = 1e-4}}};
  return make_shaped_case(args, {.shape = std::move(shape), .dtype = dtype, .draws = draws});
}

KernelCase case_of(const SumOfSquares& args, std::string shape) {
  if (shape.empty()) shape = fmt::format("N{}", args.count);
  const std::int64_t terms = std::min<std::int64_t>(args.count, 1024);  // in f32; further sums are in f64
  return make_shaped_case(args, {.shape = std::move(shape), .dtype = args.x.dtype, .terms = {{"sum", terms}}});
}

std::vector<KernelCase> optimizer_test_cases() {
  std::vector<KernelCase> cases;
  for (DType dtype : kActivationDTypes) {
    for (std::int64_t count : test_counts(dtype)) add_of_length(cases, count, dtype, fmt::format("N{}", count));
    for (std::int64_t step : {1, 2, 1000, 100000}) {
      const OptimizerStep args{.count = 1031,
                               .narrow_weights = dtype != DType::f32,
                               .numbers = {.rate = 0.1F},
                               .step = step,
                               .grad_scale = 0.125F};
      // Weights of zero show the size of the step itself, which is far below the size of usual weights.
      cases.push_back(case_of(shaped(args, dtype), fmt::format("N1031_step{}", step), {.kind = Draw::Kind::zero}));
    }
    cases.push_back(scheduled_case(dtype));
    // Gradients of 16 and 32 bits with f32 weights.
    const std::string shape = "N127_wide";
    if (dtype == DType::f32) continue;
    for (const OptimizerKind kind : kOptimizerKinds) {
      cases.push_back(case_of(shaped(OptimizerStep{.count = 127, .kind = kind}, dtype), shape));
    }
  }
  for (std::int64_t shards : {1, 2, 17}) {
    const Draws draws{{"sums", {.kind = Draw::Kind::positive, .scale = 1}}};
    for (float most : {0.125F, 1.0F, 100.0F}) {
      cases.push_back(make_case(ClipFactor{.shards = shards, .most = most},
                                {.shape = fmt::format("N{}_most{}", shards, most), .draws = draws}));
      cases.push_back(make_case(ClipFactor{.shards = shards, .most = most, .grad_scale = 0.0078125F},
                                {.shape = fmt::format("N{}_most{}_scaled", shards, most), .draws = draws}));
    }
  }
  for (const double clip : {0.0, std::nan("")}) {
    for (const OptimizerKind kind : kOptimizerKinds) cases.push_back(skipped_case(kind, clip));
  }
  return cases;
}

std::vector<KernelCase> optimizer_bench_cases() {
  std::vector<KernelCase> cases;
  for (DType dtype : kBenchDTypes) {
    for (std::int64_t millions : {1, 16, 64}) {
      add_of_length(cases, millions << 20, dtype, fmt::format("N{}M", millions));
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
