#include "bench/kernels/touched.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lockstep::kernel_bench {

double most_touched_bytes(const kernels::KernelCase& one) {
  std::vector<std::pair<double, int>> operands;  // size, number of passes over it
  int passes = 0;
  for (const kernels::CaseOperand& operand : one.operands) {
    operands.emplace_back(static_cast<double>(operand.bytes()), operand.access == kernels::Access::update ? 2 : 1);
    passes += operands.back().second;
  }
  std::sort(operands.begin(), operands.end());
  double left = one.cost.bytes;
  for (const auto& [bytes, times] : operands) {
    if (bytes * passes >= left) return left / passes;
    left -= bytes * times;
    passes -= times;
  }
  return operands.empty() ? 0 : operands.back().first;
}

double footprint_bytes(const kernels::KernelCase& one) {
  const double most = most_touched_bytes(one);
  double bytes = 0;
  for (const kernels::CaseOperand& operand : one.operands) {
    bytes += std::min(static_cast<double>(operand.bytes()), most);
  }
  return bytes;
}

bool names_rows(const kernels::Draw& draw) {
  using Kind = kernels::Draw::Kind;
  return draw.kind == Kind::index || (draw.kind == Kind::given && draw.below > 0);
}

bool names_rows(const kernels::KernelCase& one) {
  const double most = most_touched_bytes(one);
  const auto names = [](const auto& operand) { return names_rows(operand.draw); };
  const auto is_partly_touched = [&](const auto& operand) { return static_cast<double>(operand.bytes()) > most; };
  return std::any_of(one.operands.begin(), one.operands.end(), names) &&
         std::any_of(one.operands.begin(), one.operands.end(), is_partly_touched);
}

}  // namespace lockstep::kernel_bench
