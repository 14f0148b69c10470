#include "kernels/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/base/kernel_case.h"
#include "kernels/optimizer/optimizer.h"

namespace lockstep::kernels {
namespace {

using core::DType;
using Draws = std::map<std::string, Draw>;

const Draw kClip{.kind = Draw::Kind::positive, .scale = 1};

// A step late in training: no correction is near zero.
KernelCase scheduled_case(DType dtype) {
  const AdamW args{.count = 1031, .narrow_weights = dtype != DType::f32, .scheduled = true, .decay = 0.1F};
  KernelCase one = case_of(shaped(args, dtype), "N1031_scheduled");
  one.derive = [args](ReferenceData<double>& data) {
    const auto schedule = adamw_schedule(0.0625F, args.beta1, args.beta2, 7);
    std::copy(schedule.begin(), schedule.end(), data["schedule"].begin());
  };
  return one;
}

// The norm was infinite or NaN: nothing changes.
template <class Args>
KernelCase skipped_case(const Args& args, double clip) {
  KernelCase one = make_case(args, {.shape = fmt::format("N131_clip{}", clip), .dtype = DType::f32});
  one.derive = [clip](ReferenceData<double>& data) { data["clip"][0] = clip; };
  return one;
}

KernelCase sgd_case(const SgdMomentum& args, DType dtype, const std::string& shape) {
  const Draws draws{{"grad", {.scale = 0.01}}, {"clip", kClip}, {"momentum", {.scale = 0.1}}};
  return make_case(args, {.shape = shape, .dtype = dtype, .draws = draws});
}

void add_of_length(std::vector<KernelCase>& cases, std::int64_t count, DType dtype, const std::string& shape) {
  const bool narrow = dtype != DType::f32;
  const AdamW adamw{.count = count, .narrow_weights = narrow, .decay = 0.1F, .step = 10};
  cases.push_back(case_of(shaped(adamw, dtype), shape));
  cases.push_back(sgd_case({.count = count, .narrow_weights = narrow, .decay = 0.01F}, dtype, shape));
  cases.push_back(case_of(shaped(SumOfSquares{.count = count}, dtype), shape));
  cases.push_back(make_case(FiniteCheck{.count = count}, {.shape = shape, .dtype = dtype}));
}

}  // namespace

KernelCase case_of(const AdamW& args, std::string shape, const Draw& weights) {
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
      const AdamW args{
          .count = 1031, .narrow_weights = dtype != DType::f32, .rate = 0.1F, .step = step, .grad_scale = 0.125F};
      // Weights of zero show the size of the step itself, which is far below that of usual weights.
      cases.push_back(case_of(shaped(args, dtype), fmt::format("N1031_step{}", step), {.kind = Draw::Kind::zero}));
    }
    cases.push_back(scheduled_case(dtype));
    // Gradients of 16 and 32 bits with f32 weights.
    const std::string shape = "N127_wide";
    if (dtype == DType::f32) continue;
    cases.push_back(case_of(shaped(AdamW{.count = 127}, dtype), shape));
    cases.push_back(sgd_case({.count = 127}, dtype, shape));
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
    cases.push_back(skipped_case(AdamW{.count = 131}, clip));
    cases.push_back(skipped_case(SgdMomentum{.count = 131}, clip));
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
