#include "bench/kernels/neighbours.h"

#include "bench/kernels/place.h"
#include "kernels/gemm/gemm.h"

namespace lockstep::kernel_bench {

Neighbours::Neighbours(core::Device& device, const kernels::KernelCase& one, const Patterns& patterns,
                       const Setting& setting, double cold_bytes, const std::string& gemm)
    : started_(setting.copies - 1) {
  failures_.resize(static_cast<std::size_t>(setting.copies - 1));
  const auto repeat = [&, setting, cold_bytes, gemm](std::size_t copy) {
    bool has_started = false;
    try {
      const std::unique_ptr<Place> place =
          make_cpu_place(setting.threads, (static_cast<int>(copy) + 1) * setting.threads);
      if (!gemm.empty()) kernels::choose_gemms_by_rule(place->context(), gemm);
      Arena arena(device);
      OperandSets sets(arena, one, patterns, cold_bytes);
      const std::function<void(std::span<void* const>, const kernels::Context&)> run = one.run;
      run(sets.next(), place->context());
      has_started = true;
      started_.count_down();
      while (!is_over_.load(std::memory_order_relaxed)) run(sets.next(), place->context());
    } catch (...) {
      failures_[copy] = std::current_exception();
      if (!has_started) started_.count_down();
    }
  };
  for (std::size_t copy = 0; copy < failures_.size(); ++copy) threads_.emplace_back(repeat, copy);
  started_.wait();
  for (const std::exception_ptr& error : failures_) {
    if (error) {
      is_over_ = true;
      std::rethrow_exception(error);
    }
  }
}

Neighbours::~Neighbours() {
  is_over_ = true;
}

}  // namespace lockstep::kernel_bench
