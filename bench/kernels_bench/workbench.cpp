#include "bench/kernels_bench/benchmarks.h"

#include <memory>

#include "bench/kernels_bench/roofline.h"
#include "bench/kernels_bench/timed_device.h"
#include "core/device.h"
#include "kernels/base/case_checks.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::kernel_bench {

Neighbours::Neighbours(const kernels::KernelCase& kernel_case, const Patterns& patterns, const Setting& setting,
                       double cold_bytes, const std::string& gemm)
    : started_(setting.copies - 1) {
  failures_.resize(static_cast<std::size_t>(setting.copies - 1));
  // `kernel_case` and `patterns` are used only until the first call has ended; the constructor waits for that.
  const auto repeat = [&, setting, cold_bytes, gemm](const std::stop_token& stop, std::size_t copy) {
    bool has_started = false;
    try {
      const std::unique_ptr<TimedDevice> timed =
          make_timed_cpu(setting.threads, (static_cast<int>(copy) + 1) * setting.threads);
      if (!gemm.empty()) kernels::choose_gemms_by_rule(timed->context(), gemm);
      const std::unique_ptr<core::Device> device =
          core::make_cpu_device();  // its own device: a device tracks the allocations of one thread
      Arena arena(*device);
      OperandSets sets(arena, kernel_case, patterns, cold_bytes);
      const std::function<void(std::span<void* const>, const kernels::Context&)> run = kernel_case.run;
      run(sets.next(), timed->context());
      has_started = true;
      started_.count_down();
      while (!stop.stop_requested()) run(sets.next(), timed->context());
    } catch (...) {
      has_failed_ = true;
      if (has_started) return;
      failures_[copy] = std::current_exception();
      started_.count_down();
    }
  };
  for (std::size_t copy = 0; copy < failures_.size(); ++copy) threads_.emplace_back(repeat, copy);
  started_.wait();
  for (const std::exception_ptr& failure : failures_) {
    if (failure) std::rethrow_exception(failure);
  }
}

bool is_checkable(const kernels::KernelCase& kernel_case) {
  constexpr double kMostFlops = 1e9;
  constexpr std::int64_t kMostElems = 10'000'000;  // each is drawn, rounded and compared
  std::int64_t elems = 0;
  for (const kernels::CaseOperand& operand : kernel_case.operands) elems += operand.elems;
  return kernel_case.cost.flops <= kMostFlops && elems <= kMostElems;
}

Workbench::Workbench(const WorkbenchOptions& options)
    : options_(options), device_(make_device(options.device, options.timeout)), arena_(*device_) {
  if (!device_->computes()) options_.check = false;
}

void Workbench::prepare(Instance& instance) {
  if (prepared_ == &instance) return;
  prepared_ = nullptr;
  neighbours_.reset();
  enter_device(instance);
  take_case(*instance.one);
  instance.outcome.checked = options_.check && is_checkable(*instance.one);
  if (!case_errors_.empty()) {
    instance.outcome.status = "wrong";
    instance.outcome.error = case_errors_;
    return;
  }
  if (instance.setting.copies > 1) {
    timed_.reset();  // its pool pins this thread, and a new thread may only run where the thread that starts it may
    neighbours_ =
        std::make_unique<Neighbours>(*instance.one, patterns_, instance.setting,
                                     instance.setting.cache == Cache::cold ? options_.cold_bytes : 0, options_.gemm);
    enter_device(instance);
  }
  take_operands(instance);
  instance.one->run(sets_->next(), timed_->context());
  timed_->wait();
  prepared_ = &instance;
}

void Workbench::enter_device(const Instance& instance) {
  const Setting& wanted = instance.setting;
  if (timed_ && timed_setting_.threads == wanted.threads && timed_by_ == instance.timing) return;
  timed_.reset();  // first, because a pool pins the thread that makes the next one
  timed_ = wanted.device == "cpu" ? make_timed_cpu(wanted.threads)
                                  : make_timed_cuda(*device_, instance.timing, options_.choices);
  if (!options_.gemm.empty()) kernels::choose_gemms_by_rule(timed_->context(), options_.gemm);
  timed_setting_ = wanted;
  timed_by_ = instance.timing;
}

void Workbench::take_case(const kernels::KernelCase& kernel_case) {
  if (case_ == &kernel_case) return;
  case_ = nullptr;
  case_errors_.clear();
  if (options_.check && is_checkable(kernel_case)) {
    const kernels::CaseRunner runner{*device_, timed_->context(), [this] { timed_->wait(); }};
    case_errors_ = kernels::result_errors(kernel_case, options_.seed, runner);
    while (!case_errors_.empty() && case_errors_.back() == '\n') case_errors_.pop_back();
  }
  // Operands that are not checked need not be drawn completely, which takes 0.2 s for a case with 16 MB, unless an
  // input follows from others.
  const bool exact = is_checkable(kernel_case) && (options_.check || (kernel_case.derive && device_->computes()));
  patterns_ = exact ? exact_patterns(kernel_case, options_.seed) : short_patterns(kernel_case, options_.seed);
  case_ = &kernel_case;
}

void Workbench::take_operands(const Instance& instance) {
  const bool cold = instance.setting.cache == Cache::cold;
  sets_.emplace(arena_, *instance.one, patterns_, cold ? options_.cold_bytes : 0);
}

double Workbench::us_of_call(std::int64_t calls) {
  const kernels::KernelCase& kernel_case = *prepared_->one;
  const kernels::Context& context = timed_->context();
  return timed_->us_of(calls, [&] { kernel_case.run(sets_->next(), context); }) / static_cast<double>(calls);
}

void Workbench::end(Instance& instance) {
  if (neighbours_ && neighbours_->has_failed()) {
    throw core::Error(core::Failure::internal, "a concurrent copy has failed, so it ran with fewer copies");
  }
  instance.outcome.cores = timed_->cores();
  std::string& implementation = instance.outcome.implementation;
  if (instance.one->implementation) implementation = instance.one->implementation(timed_->context());
  if (implementation.empty() && timed_->context().on_cpu()) implementation = instruction_set();
}

}  // namespace lockstep::kernel_bench
