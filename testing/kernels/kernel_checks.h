// Checks that every kernel case must pass, for tests; the same on every device.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/base/case_checks.h"
#include "kernels/base/context.h"
#include "kernels/base/kernel_case.h"
#include "kernels/base/thread_pool.h"

namespace lockstep::kernels {

// Each returns its findings, one per line, with operand and element; empty if there are none.

// Checks that two runs, and runs on each of `runners`, give the same bits, if the case promises it.
std::string determinism_errors(const KernelCase& kernel_case, std::uint64_t seed,
                               const std::vector<CaseRunner>& runners);
// Checks that declared bytes are the operands' or a reason is given, and that declared FLOPs match the reference.
std::string cost_errors(const KernelCase& kernel_case);

// Runs all of the above on the CPU, in pools of 1, 2 and 3 threads, aligned and not.
std::string cpu_errors(const KernelCase& kernel_case, std::uint64_t seed = 1);

// Runs them on each instruction set that this machine supports; those with an operand of `most_elems` or more only on
// the best.
std::string errors_on_each_target(const std::vector<KernelCase>& cases,
                                  std::int64_t most_elems = std::numeric_limits<std::int64_t>::max());

// Runs a kernel on the CPU. `memory` has its operands, in the order of visit_operands(); those that may have several
// dtypes have `dtype`.
template <class Args>
void run_on_cpu(const Args& args, const std::vector<const void*>& memory, int threads = 1,
                core::DType dtype = core::DType::f32) {
  std::vector<void*> operands;
  for (const void* operand : memory) operands.push_back(const_cast<void*>(operand));
  ThreadPool pool(threads);
  run(with_memory(shaped(args, dtype), operands), Context(pool));
}

// Returns the text of the usage error that `call` throws; empty if it throws none.
std::string usage_error_of(const std::function<void()>& call);
// Returns the message of check() about the arguments, as a user reads it.
template <class Args>
std::string refusal(const Args& args) {
  return usage_error_of([&] { check(args); });
}

// Checks that a backward's reference is the derivative of its forward's: directional derivatives by finite differences
// in f64. Kernels are checked against references, so this covers them too. Usage in x_test.cpp:
//
//   // f64 operands never run; with them, references round nothing.
//   const CaseFacts facts{.shape = "R3_C17", .dtype = core::DType::f64};
//   const GradientCheck check{
//       .forward = make_case(NormForward{.norm = Norm::layer, .rows = 3, .columns = 17}, facts),
//       .backward = make_case(NormBackward{.norm = Norm::layer, .rows = 3, .columns = 17}, facts),
//       .outputs = {{"y", "dy"}},
//       .inputs = {{"x", "dx"}, {"gamma", "dgamma"}, {"beta", "dbeta"}}};
//   EXPECT_EQ(gradient_errors(check), "");
//
// Operands of the backward with the name of one of the forward's (x, y, mean) get its values; other names are matched
// by `same`. Leave inputs that cannot be differentiated (token ids) out of `inputs`.

struct GradientCheck {
  struct Names {
    std::string forward;
    std::string backward;
  };
  KernelCase forward;
  KernelCase backward;
  std::vector<Names> outputs;    // outputs of the forward, and the gradients that the backward reads
  std::vector<Names> inputs;     // inputs of the forward, and their gradients, which the backward writes or adds to
  std::vector<Names> same = {};  // operands of the backward that hold a forward's operand with another name
  // Relative to the sum of the derivative's terms. The formula's own error is about step^4 and 1e-16 / step.
  double tolerance = 1e-8;
  double step = 1e-3;
};

// Returns each input whose gradient is wrong, with both derivatives; empty if none is. The seed draws operands and
// directions.
std::string gradient_errors(const GradientCheck& check, std::uint64_t seed = 1);

// Runs tests on all instruction sets that this machine supports, not only on its best.

// Calls check(name) once for each target that kernels are compiled for and that can run here, with Highway's choice set
// to it, the best first; then lets Highway choose again. Must not run while other threads run kernels.
void on_each_target(const std::function<void(const std::string& name)>& check);

}  // namespace lockstep::kernels
