// Checks that every kernel case must pass, for tests; the same on every device.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/device.h"
#include "kernels/base/kernel_case.h"

namespace lockstep::kernels {

// A case's operands in a device's memory, each between two sentinels of 64 bytes that nobody may touch.
class CaseMemory {
 public:
  // `misalign_elems`: every operand begins so many elements after a 128-byte boundary.
  CaseMemory(core::Device& device, const KernelCase& one, int misalign_elems = 0);
  ~CaseMemory();
  CaseMemory(const CaseMemory&) = delete;
  CaseMemory& operator=(const CaseMemory&) = delete;

  std::vector<void*> pointers() const;  // for KernelCase::run
  // Inputs as given; what is only written is filled with bytes that are NaN in every float.
  void fill(const ReferenceData<double>& inputs);
  ReferenceData<double> read() const;               // all operands
  std::vector<std::byte> bytes_of_outputs() const;  // for bitwise comparison
  std::string broken_sentinel() const;              // the operand whose sentinel was written, or ""

 private:
  struct Piece {
    std::byte* memory;  // with sentinels
    std::size_t offset_bytes;
    std::size_t size_bytes;
  };
  core::Device& device_;
  const KernelCase& case_;
  std::vector<Piece> pieces_;
};

// Where a test runs cases: waits for the kernel where it is queued.
struct CaseRunner {
  core::Device& device;
  const Context& context;
  std::function<void()> wait = [] {};
};

// Each returns what is wrong, a line a finding; empty: nothing. Findings name the operand and the element.
std::string result_errors(const KernelCase& one, std::uint64_t seed, const CaseRunner& runner, int misalign_elems = 0);
// That two runs, and runs on each of `runners`, give the same bits, if the case says so.
std::string determinism_errors(const KernelCase& one, std::uint64_t seed, const std::vector<CaseRunner>& runners);
// That declared bytes are the operands' or a reason is given, and declared FLOPs those that the reference does.
std::string cost_errors(const KernelCase& one);

// All of the above on the CPU, in pools of 1, 2 and 3 threads, aligned and not.
std::string cpu_errors(const KernelCase& one, std::uint64_t seed = 1);

// The usage error that `call` throws; empty if it throws none.
std::string usage_error_of(const std::function<void()>& call);
// The message of check() about arguments, as a user reads it.
template <class Args>
std::string refusal(const Args& args) {
  return usage_error_of([&] { check(args); });
}

}  // namespace lockstep::kernels
