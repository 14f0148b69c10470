#include "bench/kernels/operand_sets.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace lockstep::kernel_bench {
namespace {

constexpr std::size_t kAlignment = 128;
// Between operands, so that they do not begin at the same place of a page: a load close behind a store to the same
// place of another page waits for it on x86.
constexpr std::size_t kGapBytes = 5 * kAlignment;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t far_step(std::size_t number) {
  auto step = static_cast<std::size_t>(static_cast<double>(number) * 0.618);
  if (step == 0) step = 1;
  while (std::gcd(step, number) != 1) ++step;
  return step;
}

void fill(core::Device& device, std::byte* to, std::size_t size_bytes, const std::vector<std::byte>& pattern) {
  for (std::size_t done = 0; done < size_bytes; done += pattern.size()) {
    device.copy_to_device(to + done, pattern.data(), std::min(pattern.size(), size_bytes - done));
  }
}

}  // namespace

Arena::~Arena() {
  if (memory_ != nullptr) device_.release(memory_);
}

std::byte* Arena::at_least(std::size_t size_bytes) {
  if (size_bytes > size_bytes_) {
    if (memory_ != nullptr) device_.release(memory_);
    memory_ = nullptr;
    size_bytes_ = 0;
    memory_ = static_cast<std::byte*>(device_.allocate(size_bytes));
    size_bytes_ = size_bytes;
  }
  return memory_;
}

Patterns exact_patterns(const kernels::KernelCase& one, std::uint64_t seed) {
  const kernels::ReferenceData<double> inputs = kernels::draw_inputs(one, seed);
  Patterns patterns;
  for (std::size_t k = 0; k < one.operands.size(); ++k) {
    patterns.emplace_back(one.operands[k].bytes());
    kernels::store(inputs.arrays()[k].second, one.operands[k].dtype, patterns.back().data());
  }
  return patterns;
}

Patterns short_patterns(const kernels::KernelCase& one, std::uint64_t seed) {
  constexpr std::int64_t kMostElems = std::int64_t{1} << 18;
  kernels::KernelCase shorter = one;
  shorter.derive = {};
  for (kernels::CaseOperand& operand : shorter.operands) operand.elems = std::min(operand.elems, kMostElems);
  return exact_patterns(shorter, seed);
}

OperandSets::OperandSets(Arena& arena, const kernels::KernelCase& one, const Patterns& patterns, double least_bytes) {
  for (const kernels::CaseOperand& operand : one.operands) {
    offsets_.push_back(set_bytes_);
    set_bytes_ += aligned(operand.bytes()) + kGapBytes;
  }
  number_ =
      std::max(static_cast<std::size_t>(std::ceil(least_bytes / static_cast<double>(set_bytes_))), std::size_t{1});
  step_ = far_step(number_);
  pointers_.resize(offsets_.size());
  memory_ = arena.at_least(set_bytes_ * number_);
  for (std::size_t i = 0; i < number_; ++i) {
    for (std::size_t k = 0; k < offsets_.size(); ++k) {
      fill(arena.device(), memory_ + i * set_bytes_ + offsets_[k], one.operands[k].bytes(), patterns[k]);
    }
  }
}

std::span<void* const> OperandSets::next() {
  present_ = (present_ + step_) % number_;
  std::byte* const set = memory_ + present_ * set_bytes_;
  for (std::size_t k = 0; k < offsets_.size(); ++k) pointers_[k] = set + offsets_[k];
  return pointers_;
}

}  // namespace lockstep::kernel_bench
