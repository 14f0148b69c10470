#include "kernels/base/case_checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "core/device.h"

namespace lockstep::kernels {
namespace {

constexpr std::size_t kSentinelBytes = 64;
constexpr std::size_t kAlignment = 128;
constexpr auto kSentinel = std::byte{0xA5};
constexpr auto kUnwritten = std::byte{0xFF};  // NaN in f32, f16, bf16 and both fp8; -1 in integers

double largest_of(const std::vector<double>& values) {
  double largest = 0;
  for (double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
  }
  return largest;
}

bool close(const CaseOperand& operand, double got, double wanted, double largest) {
  if (std::isnan(wanted)) return std::isnan(got);
  if (std::isinf(wanted)) return got == wanted;
  return std::fabs(got - wanted) <= allowed_error(operand, wanted, largest);
}

// Describes the first few wrong elements of an operand.
std::string operand_errors(const CaseOperand& operand, const std::vector<double>& got,
                           const std::vector<double>& wanted) {
  constexpr int kMostShown = 3;
  const double largest = largest_of(wanted);
  std::string text;
  int wrong = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (close(operand, got[i], wanted[i], largest)) continue;
    if (++wrong > kMostShown) continue;
    text += fmt::format("{}[{}] is {:.9g}, should be {:.9g} within {:.2g}\n", operand.name, i, got[i], wanted[i],
                        allowed_error(operand, wanted[i], largest));
  }
  if (wrong > kMostShown) text += fmt::format("{}: {} of {} wrong\n", operand.name, wrong, wanted.size());
  return text;
}

}  // namespace

CaseMemory::CaseMemory(core::Device& device, const KernelCase& kernel_case, int misalign_elems)
    : device_(device), case_(kernel_case) {
  for (const CaseOperand& operand : kernel_case.operands) {
    const std::size_t shift = size_bytes(operand.dtype, misalign_elems);
    const std::size_t offset_bytes = kAlignment + shift;
    const std::size_t all_bytes = offset_bytes + operand.bytes() + kSentinelBytes;
    pieces_.push_back({static_cast<std::byte*>(device.allocate(all_bytes)), offset_bytes, operand.bytes()});
  }
}

CaseMemory::~CaseMemory() {
  for (const Piece& piece : pieces_) device_.release(piece.memory);
}

std::vector<void*> CaseMemory::pointers() const {
  std::vector<void*> pointers;
  for (const Piece& piece : pieces_) pointers.push_back(piece.memory + piece.offset_bytes);
  return pointers;
}

void CaseMemory::fill(const ReferenceData<double>& inputs) {
  if (!device_.computes()) return;
  for (std::size_t k = 0; k < pieces_.size(); ++k) {
    const Piece& piece = pieces_[k];
    std::vector<std::byte> bytes(piece.offset_bytes + piece.size_bytes + kSentinelBytes, kSentinel);
    std::byte* const operand = bytes.data() + piece.offset_bytes;
    if (case_.operands[k].access == Access::write) {
      std::fill(operand, operand + piece.size_bytes, kUnwritten);
    } else {
      store(inputs.arrays()[k].second, case_.operands[k].dtype, operand);
    }
    device_.copy_to_device(piece.memory, bytes.data(), bytes.size());
  }
}

ReferenceData<double> CaseMemory::read() const {
  ReferenceData<double> data;
  for (std::size_t k = 0; k < pieces_.size(); ++k) {
    const CaseOperand& operand = case_.operands[k];
    std::vector<std::byte> bytes(pieces_[k].size_bytes);
    device_.copy_to_host(bytes.data(), pieces_[k].memory + pieces_[k].offset_bytes, bytes.size());
    data.add(operand.name, load(operand.dtype, bytes.data(), operand.elems));
  }
  return data;
}

std::vector<std::byte> CaseMemory::bytes_of_outputs() const {
  std::vector<std::byte> all;
  for (std::size_t k = 0; k < pieces_.size(); ++k) {
    if (case_.operands[k].access == Access::read) continue;
    std::vector<std::byte> bytes(pieces_[k].size_bytes);
    device_.copy_to_host(bytes.data(), pieces_[k].memory + pieces_[k].offset_bytes, bytes.size());
    all.insert(all.end(), bytes.begin(), bytes.end());
  }
  return all;
}

std::string CaseMemory::broken_sentinel() const {
  for (std::size_t k = 0; k < pieces_.size(); ++k) {
    const Piece& piece = pieces_[k];
    std::vector<std::byte> bytes(piece.offset_bytes + piece.size_bytes + kSentinelBytes);
    device_.copy_to_host(bytes.data(), piece.memory, bytes.size());
    const auto intact = [](std::byte b) { return b == kSentinel; };
    const auto operand = bytes.begin() + static_cast<std::ptrdiff_t>(piece.offset_bytes);
    const auto after = operand + static_cast<std::ptrdiff_t>(piece.size_bytes);
    if (!std::all_of(bytes.begin(), operand, intact) || !std::all_of(after, bytes.end(), intact)) {
      return case_.operands[k].name;
    }
  }
  return "";
}

ReferenceData<double> inputs_for(const core::Device& device, const KernelCase& kernel_case, std::uint64_t seed) {
  return device.computes() ? draw_inputs(kernel_case, seed) : ReferenceData<double>{};
}

std::string result_errors(const KernelCase& kernel_case, std::uint64_t seed, const CaseRunner& runner,
                          int misalign_elems) {
  ReferenceData<double> wanted = inputs_for(runner.device, kernel_case, seed);
  CaseMemory memory(runner.device, kernel_case, misalign_elems);
  memory.fill(wanted);
  kernel_case.run(memory.pointers(), runner.context);
  runner.wait();
  if (!runner.device.computes()) return "";
  kernel_case.reference(wanted);
  const ReferenceData<double> got = memory.read();
  std::string text;
  for (std::size_t k = 0; k < kernel_case.operands.size(); ++k) {
    text += operand_errors(kernel_case.operands[k], got.arrays()[k].second, wanted.arrays()[k].second);
  }
  const std::string broken = memory.broken_sentinel();
  if (!broken.empty()) text += "written outside of " + broken + "\n";
  return text.empty() ? "" : kernel_case.name() + ":\n" + text;
}

}  // namespace lockstep::kernels
