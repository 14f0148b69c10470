// Compares a kernel's results with its reference; the same on every device.
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
  // Stores inputs as given; operands that are only written are filled with bytes that are NaN in every float type. Does
  // nothing if the device computes nothing.
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

// Where cases run: waits for the kernel if it is queued.
struct CaseRunner {
  core::Device& device;
  const Context& context;
  std::function<void()> wait = [] {};
};

// draw_inputs(); empty for a device that computes nothing.
ReferenceData<double> inputs_for(const core::Device& device, const KernelCase& kernel_case, std::uint64_t seed);

// Returns the findings, one per line, with operand and element; empty if there are none. On a device that computes
// nothing the kernel is launched, and nothing is compared.
std::string result_errors(const KernelCase& kernel_case, std::uint64_t seed, const CaseRunner& runner,
                          int misalign_elems = 0);

}  // namespace lockstep::kernels
