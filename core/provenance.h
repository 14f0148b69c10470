// The facts that a stranger needs to repeat a run: source, build and machine. Nothing private: no user, host, folder or
// environment.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/device_cuda.h"
#include "core/energy.h"
#include "core/record_types.h"

namespace lockstep::core {

Source source();
Build build();
Machine this_machine();  // without GPUs and for one host; the caller fills these in

// A hash of all fields but the clock: results are comparable if it is equal.
std::string fingerprint(const Machine& machine);

// Makes the record of a run of this process, source and build on this machine that starts now.
RunRecord new_run(const std::string& program, const std::vector<std::string>& command);

// The command line as it may be published: only the last part of absolute paths is kept.
std::vector<std::string> public_command(const std::vector<std::string>& command);

std::string utc_now();     // "2026-01-31T23:59:59Z"
std::string new_run_id();  // 16 random hexadecimal digits

// The part of records about a run's GPUs: their settings, their software, and what limits their clocks. Without NVML
// the fields that it would fill are left out.

// `ranks_per_gpu` is the maximum over the GPUs.
GpuRecord gpu_record(const std::vector<CudaDeviceInfo>& gpus, int ranks_per_gpu);

// Versions of "cuda" (the runtime), "cuda_driver" (the newest CUDA that the driver supports), "nvidia_driver"
// ("580.82.07").
std::map<std::string, std::string> gpu_libraries(const std::vector<CudaDeviceInfo>& gpus);

// Reads the GPUs' state right before and after each measurement; returns nothing without NVML.
class GpuWatch {
 public:
  explicit GpuWatch(const std::vector<CudaDeviceInfo>& gpus);
  bool sees() const { return !watched_.empty(); }
  std::vector<GpuStateRecord> now() const;

 private:
  struct Watched {
    std::string pci_id;
    std::unique_ptr<GpuMeter> meter;
  };
  std::vector<Watched> watched_;
};

GpuStateRecord state_of(const std::string& pci_id, const GpuMeter& gpu);

// The clocks between which samples still count as taken at one clock, and how often they are measured again.
struct ClockBounds {
  double most_change =
      0.03;  // change of a clock as a share of the higher one; boost clocks have steps of 15 MHz, 0.8 %
  int most_repeats = 2;
};

// The change of a GPU between two looks because of which the samples in between do not count, in one line:
// "0000:1b:00.0: SM clock 1980 to 1410 MHz", "0000:1b:00.0: power cap". Nothing if there is none. Clocks of a GPU that
// was idle at one of the two looks are not compared, as it slows down by itself.
std::optional<std::string> clock_disturbance(std::span<const GpuStateRecord> before,
                                             std::span<const GpuStateRecord> after, double most_change);

// Repeats the samples of a row, a bounded number of times, if the clocks of a GPU have changed meanwhile.
class SteadyClocks {
 public:
  using Look = std::function<std::vector<GpuStateRecord>()>;  // GpuWatch::now(); none: there is nothing to see
  explicit SteadyClocks(Look look, ClockBounds bounds = {}) : look_(std::move(look)), bounds_(bounds) {}

  void begin();  // right before the samples are taken
  bool again();  // right after: whether they are to be dropped and taken again, from begin() on
  // Calls measure(), which drops what it measured before, until it need not be called again.
  template <class Measure>
  void run(Measure&& measure) {
    do {
      begin();
      measure();
    } while (again());
  }

  const std::vector<GpuStateRecord>& after() const { return after_; }
  std::optional<GpuClocksRecord> record() const;  // nothing where there is nothing to see

 private:
  Look look_;
  ClockBounds bounds_;
  std::vector<GpuStateRecord> before_;
  std::vector<GpuStateRecord> after_;
  std::optional<std::string> disturbance_;
  int repeats_ = 0;
};

// A GpuWatch's now(); none where it sees nothing.
SteadyClocks::Look watch_of(const std::vector<CudaDeviceInfo>& gpus);

}  // namespace lockstep::core
