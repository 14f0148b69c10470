#include "tests/kernel_reference_cases.h"

#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/cross_entropy_reference.h"
#include "kernels/gelu/gelu.h"
#include "kernels/gelu/gelu_reference.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_reference.h"

namespace lockstep::tests {
namespace {

using namespace lockstep::kernels;

using Cases = std::vector<ReferenceCase>;

double number(std::int64_t value) {
  return static_cast<double>(value);
}

void add_gelu(Cases& cases) {
  cases.push_back({make_case(GeluForward{.count = 501}, {.shape = "N501"}), {}});
  cases.push_back({make_case(GeluBackward{.count = 501}, {.shape = "N501"}), {}});
}

void add_cross_entropy(Cases& cases) {
  const CrossEntropy args{.rows = 7, .columns = 50, .valid_columns = 47, .scale = 0.125F};
  const Draw ids{.kind = Draw::Kind::index, .below = args.valid_columns};
  cases.push_back({make_case(args, {.shape = "R7_V50", .draws = {{"targets", ids}}}),
                   {{"rows", number(args.rows)},
                    {"columns", number(args.columns)},
                    {"valid_columns", number(args.valid_columns)},
                    {"scale", args.scale}}});
}

void add_gemm(Cases& cases) {
  const GemmShape shape{.rows = 9, .inputs = 13, .outputs = 6};
  const std::map<std::string, double> arguments{
      {"rows", number(shape.rows)}, {"inputs", number(shape.inputs)}, {"outputs", number(shape.outputs)}};
  const auto add = [&](const auto& args) { cases.push_back({make_case(args, {.shape = "N9_C13_O6"}), arguments}); };
  for (Epilogue epilogue : {Epilogue::none, Epilogue::bias, Epilogue::bias_gelu}) {
    add(GemmForward{.shape = shape, .epilogue = epilogue});
  }
  for (const bool flag : {false, true}) {
    add(GemmInputGradient{.shape = shape, .through_gelu = flag});
    add(GemmWeightGradient{.shape = shape, .with_bias = flag});
  }
}

}  // namespace

std::vector<ReferenceCase> reference_cases() {
  Cases cases;
  add_gelu(cases);
  add_cross_entropy(cases);
  add_gemm(cases);
  return cases;
}

}  // namespace lockstep::tests
