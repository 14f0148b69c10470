#include "bench/kernels_bench/timed_device.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <utility>
#include <vector>

#include "bench/serve/orders.h"
#include "core/device.h"
#include "core/device_cuda.h"
#include "core/ranks.h"

namespace lockstep::kernel_bench {
namespace {

class TimedCpu final : public TimedDevice {
 public:
  TimedCpu(int threads, int first_core) : pool_(threads, first_core), context_(pool_) {}

  const kernels::Context& context() const override { return context_; }
  void wait() override {}

  double us_of(std::int64_t calls, const std::function<void()>& call) override {
    return serve::us_of_calls(calls, call) * static_cast<double>(calls);
  }

  std::vector<int> cores() override {
    std::vector<int> cores(static_cast<std::size_t>(pool_.size()));
    pool_.on_each_thread([&](int thread) { cores[static_cast<std::size_t>(thread)] = core::present_core(); });
    return cores;
  }

 private:
  kernels::ThreadPool pool_;
  kernels::Context context_;
};

}  // namespace

std::unique_ptr<TimedDevice> make_timed_cpu(int threads, int first_core) {
  return std::make_unique<TimedCpu>(threads, first_core);
}

std::unique_ptr<core::Device> make_device(const std::string& name, std::chrono::seconds timeout) {
  return name == "cpu" ? core::make_cpu_device() : core::make_cuda_device(/*index=*/0, /*rank=*/0, timeout);
}

std::vector<std::string> timings_of(const std::string& device) {
  return device == "cpu" ? std::vector<std::string>{"host"} : std::vector<std::string>{"events", "graph"};
}

double most_touched_bytes(const kernels::KernelCase& kernel_case) {
  std::vector<std::pair<double, int>> operands;  // size, number of passes over it
  int passes = 0;
  for (const kernels::CaseOperand& operand : kernel_case.operands) {
    operands.emplace_back(static_cast<double>(operand.bytes()), operand.access == kernels::Access::update ? 2 : 1);
    passes += operands.back().second;
  }
  std::sort(operands.begin(), operands.end());
  double left = kernel_case.cost.bytes;
  for (const auto& [bytes, times] : operands) {
    if (bytes * passes >= left) return left / passes;
    left -= bytes * times;
    passes -= times;
  }
  return operands.empty() ? 0 : operands.back().first;
}

double footprint_bytes(const kernels::KernelCase& kernel_case) {
  const double most = most_touched_bytes(kernel_case);
  double bytes = 0;
  for (const kernels::CaseOperand& operand : kernel_case.operands) {
    bytes += std::min(static_cast<double>(operand.bytes()), most);
  }
  return bytes;
}

bool names_rows(const kernels::Draw& draw) {
  using Kind = kernels::Draw::Kind;
  return draw.kind == Kind::index || (draw.kind == Kind::given && draw.below > 0);
}

bool names_rows(const kernels::KernelCase& kernel_case) {
  const double most = most_touched_bytes(kernel_case);
  const auto names = [](const auto& operand) { return names_rows(operand.draw); };
  const auto is_partly_touched = [&](const auto& operand) { return static_cast<double>(operand.bytes()) > most; };
  return std::any_of(kernel_case.operands.begin(), kernel_case.operands.end(), names) &&
         std::any_of(kernel_case.operands.begin(), kernel_case.operands.end(), is_partly_touched);
}

namespace {

constexpr std::size_t kAlignment = 128;
// Minimum size of an arena: the size from which it is made of huge pages (core/device.h). Small operands then have
// the same positions in physically indexed caches in every process; on small pages, processes of one build differed by
// up to 19 %.
constexpr std::size_t kLeastBytes = std::size_t{4} << 20;
// Distance between operands, so that they do not begin at the same offset in a page: on x86, a load shortly after a
// store to the same offset of another page waits for it.
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

// Integers in [0, below), each rotated within this range by a distance that depends on the set.
std::vector<std::byte> moved_on(const std::vector<std::byte>& pattern, std::int64_t below, std::size_t set) {
  std::vector<std::int32_t> ids(pattern.size() / sizeof(std::int32_t));
  std::memcpy(ids.data(), pattern.data(), pattern.size());
  const std::int64_t by = static_cast<std::int64_t>(far_step(static_cast<std::size_t>(below)) * set) % below;
  for (std::int32_t& id : ids) id = static_cast<std::int32_t>((id + by) % below);
  std::vector<std::byte> moved(pattern.size());
  std::memcpy(moved.data(), ids.data(), moved.size());
  return moved;
}

}  // namespace

Arena::~Arena() {
  if (memory_ != nullptr) device_.release(memory_);
}

std::byte* Arena::at_least(std::size_t wanted_bytes) {
  if (wanted_bytes > size_bytes_) {
    const std::size_t size_bytes = std::max(wanted_bytes, kLeastBytes);
    if (memory_ != nullptr) device_.release(memory_);
    memory_ = nullptr;
    size_bytes_ = 0;
    memory_ = static_cast<std::byte*>(device_.allocate(size_bytes));
    size_bytes_ = size_bytes;
  }
  return memory_;
}

Patterns exact_patterns(const kernels::KernelCase& kernel_case, std::uint64_t seed) {
  const kernels::ReferenceData<double> inputs = kernels::draw_inputs(kernel_case, seed);
  Patterns patterns;
  for (std::size_t k = 0; k < kernel_case.operands.size(); ++k) {
    patterns.emplace_back(kernel_case.operands[k].bytes());
    kernels::store(inputs.arrays()[k].second, kernel_case.operands[k].dtype, patterns.back().data());
  }
  return patterns;
}

Patterns short_patterns(const kernels::KernelCase& kernel_case, std::uint64_t seed) {
  constexpr std::int64_t kMostElems = std::int64_t{1} << 18;
  kernels::KernelCase shorter = kernel_case;
  shorter.derive = {};
  for (kernels::CaseOperand& operand : shorter.operands) operand.elems = std::min(operand.elems, kMostElems);
  return exact_patterns(shorter, seed);
}

OperandSets::OperandSets(Arena& arena, const kernels::KernelCase& kernel_case, const Patterns& patterns,
                         double least_bytes) {
  place_operands(kernel_case);
  const double touched_bytes = footprint_bytes(kernel_case) + static_cast<double>(slots_.size() * kGapBytes);
  const double wanted = std::ceil(least_bytes / touched_bytes);
  number_ = std::max(static_cast<std::size_t>(wanted), std::size_t{1});
  step_ = far_step(number_);
  pointers_.resize(slots_.size());
  memory_ = arena.at_least(shared_bytes_ + set_bytes_ * number_);
  if (!arena.device().computes()) return;
  for (std::size_t set = 0; set < number_; ++set) fill_set(arena.device(), set, kernel_case, patterns);
}

void OperandSets::place_operands(const kernels::KernelCase& kernel_case) {
  const double most = most_touched_bytes(kernel_case);
  const bool shares = names_rows(kernel_case);
  for (const kernels::CaseOperand& operand : kernel_case.operands) {
    const bool is_shared = shares && static_cast<double>(operand.bytes()) > most;
    std::size_t& end = is_shared ? shared_bytes_ : set_bytes_;
    slots_.push_back({end, is_shared});
    end += aligned(operand.bytes()) + kGapBytes;
  }
}

void OperandSets::fill_set(core::Device& device, std::size_t set, const kernels::KernelCase& kernel_case,
                           const Patterns& patterns) {
  for (std::size_t k = 0; k < slots_.size(); ++k) {
    if (slots_[k].is_shared && set > 0) continue;
    const kernels::CaseOperand& operand = kernel_case.operands[k];
    const bool names = shared_bytes_ > 0 && names_rows(operand.draw);
    fill(device, address(slots_[k], set), operand.bytes(),
         names ? moved_on(patterns[k], operand.draw.below, set) : patterns[k]);
  }
}

std::byte* OperandSets::address(const Slot& slot, std::size_t set) const {
  return memory_ + slot.offset + (slot.is_shared ? 0 : shared_bytes_ + set * set_bytes_);
}

std::span<void* const> OperandSets::next() {
  present_ = (present_ + step_) % number_;
  for (std::size_t k = 0; k < slots_.size(); ++k) pointers_[k] = address(slots_[k], present_);
  return pointers_;
}

}  // namespace lockstep::kernel_bench
