// Checks that every kernel case must pass, for tests; the same on every device.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/device.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

// A case's operands in a device's memory, each between two sentinels of 64 bytes that must not be written.
class CaseMemory {
 public:
  // `misalign_elems`: every operand begins this many elements after a 128-byte boundary.
  CaseMemory(core::Device& device, const KernelCase& kernel_case, int misalign_elems = 0);
  ~CaseMemory();
  CaseMemory(const CaseMemory&) = delete;
  CaseMemory& operator=(const CaseMemory&) = delete;

  std::vector<void*> pointers() const;  // for KernelCase::run
  // Stores inputs as given; operands that are only written are filled with bytes that are NaN in every float type.
  void fill(const ReferenceData<double>& inputs);
  ReferenceData<double> read() const;               // all operands
  std::vector<std::byte> bytes_of_outputs() const;  // for bitwise comparison
  std::string broken_sentinel() const;              // name of an operand whose sentinel was written, or ""

 private:
  struct Piece {
    std::byte* memory;  // including the sentinels
    std::size_t offset_bytes;
    std::size_t size_bytes;
  };
  core::Device& device_;
  const KernelCase& case_;
  std::vector<Piece> pieces_;
};

// Where a test runs cases: waits for the kernel if it is queued.
struct CaseRunner {
  core::Device& device;
  const Context& context;
  std::function<void()> wait = [] {};
};

// Each returns its findings, one per line, with operand and element; empty if there are none.
std::string result_errors(const KernelCase& kernel_case, std::uint64_t seed, const CaseRunner& runner,
                          int misalign_elems = 0);
// Checks that two runs, and runs on each of `runners`, give the same bits, if the case promises it.
std::string determinism_errors(const KernelCase& kernel_case, std::uint64_t seed,
                               const std::vector<CaseRunner>& runners);
// Checks that declared bytes are the operands' or a reason is given, and that declared FLOPs match the reference.
std::string cost_errors(const KernelCase& kernel_case);

// Runs all of the above on the CPU, in pools of 1, 2 and 3 threads, aligned and not.
std::string cpu_errors(const KernelCase& kernel_case, std::uint64_t seed = 1);

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
// to it; then lets Highway choose again. Must not run while other threads run kernels.
void on_each_target(const std::function<void(const std::string& name)>& check);

}  // namespace lockstep::kernels
