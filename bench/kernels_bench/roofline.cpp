#include "bench/kernels_bench/roofline.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <new>

#include "bench/kernels_bench/timed_device.h"
#include "core/error.h"
#include "kernels/activation/activation.h"
#include "kernels/fp8/fp8_reference.h"
#include "kernels/fp8/gemm_fp8.h"
#include "kernels/gemm/gemm.h"
#include "kernels/gemm/gemm_reference.h"

namespace lockstep::kernel_bench {
namespace {

using Clock = std::chrono::steady_clock;

// Minimum time of a sample: long compared with starting a pool's threads, short compared with time slices of other
// programs.
constexpr double kSampleUs = 1000;
// Ceilings are measured in several rounds: another program that shares a core and halves its speed seldom stays for all
// rounds.
constexpr int kTurns = 4;
constexpr int kSamplesPerTurn = 8;
constexpr std::int64_t kGrainFloats = 128;  // required by the loops

// Sizes of a common machine, for systems that do not report their caches.
constexpr double kCommonL1 = 32 << 10;
constexpr double kCommonL2 = 1 << 20;
constexpr double kCommonL3 = 32 << 20;

double bytes_of(const std::optional<std::int64_t>& reported, double common) {
  return reported ? static_cast<double>(*reported) : common;
}

double us_of(const std::function<void()>& work) {
  const auto before = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - before).count();
}

// Times work(rounds), with enough rounds for a sample of sufficient length.
struct Timed {
  std::int64_t rounds;
  std::vector<double> samples_us;
};
Timed time_rounds(const std::function<void(std::int64_t rounds)>& work) {
  Timed timed{1, {}};
  while (us_of([&] { work(timed.rounds); }) < kSampleUs) timed.rounds *= 2;
  for (int k = 0; k < kSamplesPerTurn; ++k) timed.samples_us.push_back(us_of([&] { work(timed.rounds); }));
  return timed;
}

// Three arrays, of which each thread has its own slice.
class Arrays {
 public:
  explicit Arrays(double bytes) : floats_(static_cast<std::int64_t>(bytes / 4) / kGrainFloats * kGrainFloats) {
    for (auto& array : arrays_) {
      array.reset(new (std::align_val_t{64}) float[static_cast<std::size_t>(floats_)]);
      std::fill_n(array.get(), floats_, 1.0F);
    }
  }
  float* operator[](int index) const { return arrays_[static_cast<std::size_t>(index)].get(); }
  std::int64_t floats() const { return floats_; }

 private:
  struct Free {
    void operator()(float* memory) const { ::operator delete[](memory, std::align_val_t{64}); }
  };
  std::int64_t floats_;
  std::array<std::unique_ptr<float[], Free>, 3> arrays_;
};

// A bandwidth's loop over a thread's slice.
struct Stream {
  CeilingKind kind;
  int arrays;  // number of arrays that it reads or writes
  void (*pass)(const Arrays& arrays, std::int64_t begin, std::int64_t floats);
};

template <bool kPastCaches>
void copy_pass(const Arrays& a, std::int64_t begin, std::int64_t floats) {
  copy_loop(a[0] + begin, a[2] + begin, floats, kPastCaches);
}
template <bool kPastCaches>
void triad_pass(const Arrays& a, std::int64_t begin, std::int64_t floats) {
  triad_loop(a[0] + begin, a[1] + begin, a[2] + begin, floats, kPastCaches);
}
void read_pass(const Arrays& a, std::int64_t begin, std::int64_t floats) {
  [[maybe_unused]] const volatile float sum =
      read_loop(a[0] + begin, floats);  // volatile, so that the loop is not optimized away
}

constexpr std::array kStreams{
    Stream{CeilingKind::copy, 2, copy_pass<false>},   Stream{CeilingKind::copy, 2, copy_pass<true>},
    Stream{CeilingKind::triad, 3, triad_pass<false>}, Stream{CeilingKind::triad, 3, triad_pass<true>},
    Stream{CeilingKind::read, 1, read_pass},
};

struct Band {
  const Stream* stream;
  Ceiling ceiling;
};

std::vector<Band> bands_of(int threads, Level level) {
  std::vector<Band> bands;
  for (const Stream& stream : kStreams) {
    bands.push_back({&stream, {stream.kind, "cpu", threads, level, std::nullopt, {}}});
  }
  return bands;
}

// GB/s over operands of `footprint` bytes in total. They are processed repeatedly in pieces; a sample has as many
// pieces as take kSampleUs.
void sample(kernels::ThreadPool& pool, const Arrays& arrays, double footprint, Band& band) {
  const Stream& stream = *band.stream;
  constexpr double kPieceBytes = 4 << 20;
  const double pieces_wanted = std::max(std::floor(footprint / kPieceBytes), 1.0);
  const double of_a_thread = footprint / pieces_wanted / stream.arrays / pool.size() / sizeof(float);
  const std::int64_t floats =
      std::max(static_cast<std::int64_t>(of_a_thread) / kGrainFloats, std::int64_t{1}) * kGrainFloats;
  const auto pieces = static_cast<std::int64_t>(pieces_wanted);
  LOCKSTEP_CHECK(floats * pieces * pool.size() <= arrays.floats(), "slices fit into the arrays");
  std::int64_t next = 0;
  const Timed timed = time_rounds([&](std::int64_t rounds) {
    pool.on_each_thread([&](int thread) {
      for (std::int64_t k = 0; k < rounds; ++k) {
        stream.pass(arrays, (thread * pieces + (next + k) % pieces) * floats, floats);
      }
    });
    next += rounds;
  });
  const double bytes =
      static_cast<double>(floats * pool.size() * timed.rounds) * sizeof(float) * static_cast<double>(stream.arrays);
  for (double us : timed.samples_us) band.ceiling.samples.push_back(bytes / us / 1e3);
}

// Keeps the faster of a copy with and one without non-temporal stores.
void add_faster(std::vector<Band> bands, Ceilings& all) {
  for (Band& band : bands) {
    const bool is_second =
        !all.empty() && all.back().kind == band.ceiling.kind && all.back().level == band.ceiling.level;
    if (!is_second) {
      all.push_back(std::move(band.ceiling));
    } else if (band.ceiling.value() > all.back().value()) {
      all.back() = std::move(band.ceiling);
    }
  }
}

// Samples multiply-adds in registers on all threads, in GFLOP/s.
void sample_peak(kernels::ThreadPool& pool, Ceiling& peak) {
  std::atomic<double> flops_of_a_round = 0;
  const auto work = [&](std::int64_t rounds) {
    pool.on_each_thread(
        [&](int /*thread*/) { flops_of_a_round = fma_f32_loop(rounds * 100) / static_cast<double>(rounds); });
  };
  const Timed timed = time_rounds(work);
  for (double us : timed.samples_us) {
    peak.samples.push_back(flops_of_a_round * static_cast<double>(timed.rounds) * pool.size() / us / 1e3);
  }
}

Ceiling launch(kernels::ThreadPool& pool) {
  const auto work = [&](std::int64_t rounds) {
    for (std::int64_t round = 0; round < rounds; ++round) pool.on_each_thread([](int /*thread*/) {});
  };
  const Timed timed = time_rounds(work);
  Ceiling ceiling{CeilingKind::launch, "cpu", pool.size(), std::nullopt, std::nullopt, {}};
  for (double us : timed.samples_us) ceiling.samples.push_back(us / static_cast<double>(timed.rounds));
  return ceiling;
}

}  // namespace

std::string name_of(Level level) {
  constexpr std::array names{"l1", "l2", "l3", "memory"};
  return names.at(static_cast<std::size_t>(level));
}

std::string name_of(CeilingKind kind) {
  constexpr std::array names{"copy", "read", "triad", "fma", "gemm", "launch"};
  return names.at(static_cast<std::size_t>(kind));
}

std::string unit_of(CeilingKind kind) {
  if (kind == CeilingKind::launch) return "us";
  return kind == CeilingKind::fma || kind == CeilingKind::gemm ? "gflops" : "gbps";
}

double Ceiling::value() const {
  LOCKSTEP_CHECK(!samples.empty(), "a ceiling was measured");
  return kind == CeilingKind::launch ? *std::min_element(samples.begin(), samples.end())
                                     : *std::max_element(samples.begin(), samples.end());
}

Level level_of(double footprint_bytes, int threads, const core::Caches& caches) {
  if (footprint_bytes <= threads * bytes_of(caches.l1d_bytes, kCommonL1)) return Level::l1;
  if (footprint_bytes <= threads * bytes_of(caches.l2_bytes, kCommonL2)) return Level::l2;
  if (footprint_bytes <= bytes_of(caches.l3_bytes, kCommonL3) / 2) return Level::l3;
  return Level::memory;
}

double footprint_of(Level level, int threads, const core::Caches& caches) {
  switch (level) {
    case Level::l1:
      return threads * bytes_of(caches.l1d_bytes, kCommonL1) / 2;
    case Level::l2:
      return threads * bytes_of(caches.l2_bytes, kCommonL2) / 2;
    case Level::l3:  // larger than the L2 caches of all threads
      return std::min(4 * threads * bytes_of(caches.l2_bytes, kCommonL2), bytes_of(caches.l3_bytes, kCommonL3) / 2);
    case Level::memory:
      break;
  }
  return 2 * bytes_of(caches.l3_bytes, kCommonL3);
}

double cold_bytes_of_gpu(std::size_t l2_bytes) {
  constexpr double kLargest = 128 << 20;  // if unknown: no GPU had a larger L2 cache in 2025 (B200: 126 MB)
  return 2 * (l2_bytes == 0 ? kLargest : static_cast<double>(l2_bytes));
}

Ceilings measure_cpu_ceilings(kernels::ThreadPool& pool, const core::Caches& caches) {
  Ceilings all;
  // A read passes over one array with the whole footprint.
  const Arrays arrays(footprint_of(Level::memory, pool.size(), caches));
  constexpr std::array kLevels{Level::l1, Level::l2, Level::l3, Level::memory};
  // Kernels widen bf16 to f32: its peak in registers is f32's. Products by a matrix unit have a ceiling of their own.
  std::vector<Ceiling> peaks;
  for (core::DType dtype : {core::DType::f32, core::DType::bf16}) {
    peaks.push_back({CeilingKind::fma, "cpu", pool.size(), std::nullopt, dtype, {}});
  }
  std::vector<std::vector<Band>> bands;
  for (Level level : kLevels) bands.push_back(bands_of(pool.size(), level));
  for (int turn = 0; turn < kTurns; ++turn) {
    for (std::size_t k = 0; k < kLevels.size(); ++k) {
      for (Ceiling& peak : peaks) sample_peak(pool, peak);
      for (Band& band : bands[k]) sample(pool, arrays, footprint_of(kLevels[k], pool.size(), caches), band);
    }
  }
  for (std::vector<Band>& level : bands) add_faster(std::move(level), all);
  for (Ceiling& peak : peaks) all.push_back(std::move(peak));
  all.push_back(launch(pool));
  return all;
}

namespace {

constexpr int kSamples = 60;

// Returns the mean time of a call in each sample. The first call, which may choose an algorithm or allocate, is
// excluded.
std::vector<double> call_times_us(TimedDevice& timed, Arena& arena, const kernels::KernelCase& kernel_case,
                                  std::int64_t calls) {
  OperandSets sets(arena, kernel_case, short_patterns(kernel_case, /*seed=*/1), 0);
  const auto call = [&] { kernel_case.run(sets.next(), timed.context()); };
  call();
  timed.wait();
  std::vector<double> times_us;
  for (int k = 0; k < kSamples; ++k) times_us.push_back(timed.us_of(calls, call) / static_cast<double>(calls));
  return times_us;
}

kernels::KernelCase square_product(core::DType dtype, std::int64_t columns) {
  if (dtype != core::DType::f8e4m3) {
    return kernels::make_case(kernels::GemmForward{.shape = {columns, columns, columns}},
                              {.shape = "square", .dtype = dtype});
  }
  const kernels::GemmFp8 product{.shape = {.m = columns, .n = columns, .k = columns}};
  return kernels::make_shaped_case(kernels::shaped(product, core::DType::bf16), {.shape = "square", .dtype = dtype});
}

}  // namespace

Ceiling gemm_ceiling(TimedDevice& timed, Arena& arena, const std::string& device, int threads, core::DType dtype,
                     std::int64_t columns) {
  const kernels::KernelCase kernel_case = square_product(dtype, columns);
  Ceiling ceiling{CeilingKind::gemm, device, threads, std::nullopt, dtype, {}};
  for (double us : call_times_us(timed, arena, kernel_case, 1))
    ceiling.samples.push_back(kernel_case.cost.flops / us / 1e3);
  return ceiling;
}

Ceiling launch_ceiling(TimedDevice& timed, Arena& arena, const std::string& device) {
  const kernels::KernelCase kernel_case = kernels::make_case(kernels::GeluForward{.count = 1}, {.shape = "N1"});
  constexpr std::int64_t kCalls = 200;
  Ceiling ceiling{CeilingKind::launch, device, 1, std::nullopt, std::nullopt, {}};
  ceiling.samples = call_times_us(timed, arena, kernel_case, kCalls);
  return ceiling;
}

namespace {

const Ceiling* find(const Ceilings& ceilings, const Setting& setting, CeilingKind kind, std::optional<Level> level,
                    std::optional<core::DType> dtype) {
  const auto found = std::find_if(ceilings.begin(), ceilings.end(), [&](const Ceiling& c) {
    return c.kind == kind && c.device == setting.device && c.threads == setting.threads && c.level == level &&
           c.dtype == dtype;
  });
  return found == ceilings.end() ? nullptr : &*found;
}

// Returns the measured stream with the nearest share of writes: none of a read's bytes, 1/3 of a triad's, 1/2 of a
// copy's.
CeilingKind stream_like(double written_share) {
  if (written_share < 1.0 / 6) return CeilingKind::read;
  return written_share < 5.0 / 12 ? CeilingKind::triad : CeilingKind::copy;
}

std::optional<double> memory_us(const Work& work, const Setting& setting, const Ceilings& ceilings,
                                const core::Caches& caches) {
  const bool cold = setting.cache == Cache::cold || setting.device != "cpu";
  const Level level = cold ? Level::memory : level_of(work.footprint_bytes, setting.threads, caches);
  const Ceiling* ceiling = find(ceilings, setting, stream_like(work.written_share), level, std::nullopt);
  if (ceiling == nullptr) ceiling = find(ceilings, setting, CeilingKind::copy, level, std::nullopt);
  if (ceiling == nullptr) return std::nullopt;
  return work.bytes / ceiling->value() / 1e3;
}

// Time at the peak rate measured for this dtype or, if there is none, for f32.
std::optional<double> compute_us(const Work& work, const Setting& setting, const Ceilings& ceilings) {
  for (core::DType dtype : {work.dtype, core::DType::f32}) {
    double gflops = 0;
    for (CeilingKind kind : {CeilingKind::fma, CeilingKind::gemm}) {
      const Ceiling* const ceiling = find(ceilings, setting, kind, std::nullopt, dtype);
      if (ceiling != nullptr) gflops = std::max(gflops, ceiling->value());
    }
    if (gflops > 0) return work.flops / gflops / 1e3;
  }
  return std::nullopt;
}

}  // namespace

Work work_of(const kernels::KernelCase& kernel_case) {
  Work work{kernel_case.cost.flops, kernel_case.cost.bytes, footprint_bytes(kernel_case), 0, kernel_case.dtype};
  const double most = most_touched_bytes(kernel_case);
  double read = 0;
  double written = 0;
  for (const kernels::CaseOperand& operand : kernel_case.operands) {
    const double bytes = std::min(static_cast<double>(operand.bytes()), most);
    if (operand.access != kernels::Access::write) read += bytes;
    if (operand.access != kernels::Access::read) written += bytes;
  }
  work.written_share = written / (read + written);
  return work;
}

std::optional<Bound> bound_of(const Work& work, const Setting& setting, const Ceilings& ceilings,
                              const core::Caches& caches) {
  std::optional<Bound> bound;
  const auto at_least = [&](const char* name, std::optional<double> us) {
    if (us && (!bound || *us > bound->us)) bound = Bound{name, *us};
  };
  at_least("memory", memory_us(work, setting, ceilings, caches));
  at_least("compute", compute_us(work, setting, ceilings));
  const Ceiling* const launch = find(ceilings, setting, CeilingKind::launch, std::nullopt, std::nullopt);
  if (launch != nullptr) at_least("launch", launch->value());
  return bound;
}

}  // namespace lockstep::kernel_bench
