// gate_planted alone|collective --serve: a worker of known speed, which LOCKSTEP_PLANTED_PERCENT makes slower by as
// much (bench/serve/orders.h). Only the tests of the regression gate use it (ci/gate_selftest.py).
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "bench/program/program.h"
#include "bench/serve/orders.h"
#include "collectives/backends/backend.h"
#include "core/device.h"
#include "core/error.h"

namespace lockstep::gate {
namespace {

constexpr std::size_t kArrayBytes = std::size_t{32} << 20;
constexpr std::size_t kArrayWords = kArrayBytes / sizeof(std::uint64_t);
constexpr std::size_t kCallBytes = std::size_t{256} << 10;

// A call reads the next 256 KiB of 32 MiB, which no core's own cache holds; or multiplies and adds in
// registers, about as long. Nothing is shared between threads.
class MemoryCase {
 public:
  explicit MemoryCase(core::Device& device)
      : device_(device), words_(static_cast<std::uint64_t*>(device.allocate(kArrayBytes))) {
    std::fill_n(words_, kArrayWords, 1);
  }

  ~MemoryCase() { device_.release(words_); }

  MemoryCase(const MemoryCase&) = delete;
  MemoryCase& operator=(const MemoryCase&) = delete;
  void call() {
    constexpr std::size_t kWords = kCallBytes / sizeof(std::uint64_t);
    const std::uint64_t* const from = words_ + next_;
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < kWords; ++i) sum += from[i];
    sum_ += sum;
    next_ = (next_ + kWords) % kArrayWords;
  }

  double result() const { return static_cast<double>(sum_); }

 private:
  core::Device& device_;
  std::uint64_t* const words_;
  std::size_t next_ = 0;
  std::uint64_t sum_ = 0;
};

class ComputeCase {
 public:
  void call() {
    constexpr int kRounds = 4000;
    constexpr std::size_t kChains = 8;  // as many as keep the multipliers busy
    std::array<double, kChains> chains;
    chains.fill(value_);
    for (int round = 0; round < kRounds; ++round) {
      for (double& chain : chains) chain = chain * 0.999999 + 1e-6;
    }
    for (const double chain : chains) value_ = std::max(value_, chain);
  }

  double result() const { return value_; }

 private:
  double value_ = 1;
};

void serve_alone() {
  const std::unique_ptr<core::Device> device = core::make_cpu_device();
  MemoryCase memory(*device);
  ComputeCase compute;
  serve::serve("gate_planted", {"memory", "compute"}, [&](std::size_t index, std::int64_t calls) {
    return serve::us_of_calls(calls, [&] { index == 0 ? memory.call() : compute.call(); });
  });
  if (!std::isfinite(memory.result() + compute.result())) std::abort();  // so that no call can be optimized away
}

void serve_collective() {
  constexpr std::int64_t kCount = 16 << 10;  // f32: 64 KiB
  constexpr std::size_t kSets = 8;           // as sweeps have: no single place in memory decides
  constexpr std::size_t kSetBytes = 2 * kCount * sizeof(float);
  const collectives::Operation operation{.kind = collectives::Kind::all_reduce, .count = kCount};
  backends::BackendOptions options;
  options.num_ranks = 2;
  options.memory_bytes_per_rank = kSets * kSetBytes;
  backends::find_backend("local").run(options, [&](backends::Endpoint& endpoint) {
    auto* const memory = static_cast<float*>(endpoint.device.allocate(kSets * kSetBytes));
    std::fill_n(memory, kSets * 2 * kCount, 1.0F);
    const backends::Prepared prepared = endpoint.prepare(operation, "two_shot");
    std::size_t next = 0;
    const auto call = [&] {
      float* const set = memory + next * 2 * kCount;
      prepared.collective->run(set, set + kCount);
      next = (next + 1) % kSets;
    };
    serve::serve_ranks("gate_planted", {"collective"}, endpoint.world,
                       [&](std::size_t, std::int64_t calls) { return serve::us_of_calls(calls, call); });
    endpoint.device.release(memory);
  });
}

// Serves "memory" and "compute" from one thread, or "collective": an all-reduce of 64 KiB among two ranks, threads over
// shared memory. Returns the exit status.
int serve_planted(const std::string& which) {
  if (which == "alone") {
    serve_alone();
  } else if (which == "collective") {
    serve_collective();
  } else {
    throw core::usage_error("gate_planted " + which + ": no such cases; allowed: alone, collective");
  }
  return 0;
}

}  // namespace
}  // namespace lockstep::gate

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("gate_planted", [&] {
    if (argc != 3 || std::string(argv[2]) != "--serve") {
      throw lockstep::core::usage_error("wrong arguments; allowed: alone --serve, collective --serve");
    }
    return lockstep::gate::serve_planted(argv[1]);
  });
}
