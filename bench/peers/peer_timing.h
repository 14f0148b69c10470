// Times peers like the sweeps time Lockstep (bench/sweep/trial.h). A batch of calls that fits into 1 MiB, each with its
// own buffers that were written just before, runs between two barriers; every call is timed, and its time is that of
// its slowest rank. Standard library only: peers are built by their own compilers.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

namespace lockstep::peers {

inline std::vector<std::size_t> parse_sizes(const std::string& text) {
  std::vector<std::size_t> sizes;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) sizes.push_back(std::strtoull(part.c_str(), nullptr, 10));
  return sizes;
}

// The calls of a peer. `slowest` replaces each rank's times by the slowest rank's, on every rank.
struct Peer {
  std::function<void()> barrier;
  std::function<void(int slot)> call;
  std::function<void(std::vector<double>&)> slowest;
};

// Buffers of the calls of a batch; input and output are separate.
class Slots {
 public:
  explicit Slots(std::size_t bytes) : elems_(std::max<std::size_t>(bytes / sizeof(float), 1)) {
    constexpr std::size_t kBatchBytes = std::size_t{1} << 20;
    constexpr std::size_t kMostCalls = 32;
    const std::size_t number = std::clamp<std::size_t>(kBatchBytes / (2 * elems_ * sizeof(float)), 1, kMostCalls);
    stride_ = (elems_ + 31) / 32 * 32;
    memory_.resize(2 * stride_ * number);
  }
  int number() const { return static_cast<int>(memory_.size() / (2 * stride_)); }
  std::size_t elems() const { return elems_; }
  float* input(int slot) { return memory_.data() + 2 * stride_ * static_cast<std::size_t>(slot); }
  float* output(int slot) { return input(slot) + stride_; }

  void fill(int calls, float value) {
    for (int i = 0; i < calls; ++i) {
      std::fill(output(i), output(i) + elems_, -1.0f);
      std::fill(input(i), input(i) + elems_, value);
    }
  }
  // Returns the number of output elements that differ from `value`.
  std::size_t count_wrong(int calls, float value) {
    std::size_t wrong = 0;
    for (int i = 0; i < calls; ++i) {
      wrong += elems_ - static_cast<std::size_t>(std::count(output(i), output(i) + elems_, value));
    }
    return wrong;
  }

 private:
  std::size_t elems_;
  std::size_t stride_;
  std::vector<float> memory_;
};

// Returns the time of each call in us. Ends the program if a result is wrong.
inline std::vector<double> time_calls(Slots& slots, const Peer& peer, int rank, int ranks, int calls, int warm_up) {
  using Clock = std::chrono::steady_clock;
  const float input = static_cast<float>(rank + 1);
  const float expected = static_cast<float>(ranks * (ranks + 1) / 2);
  std::vector<double> times;
  for (int done = -warm_up; done < calls;) {
    const int batch = std::min(slots.number(), done < 0 ? -done : calls - done);
    slots.fill(batch, input);
    peer.barrier();
    auto before = Clock::now();
    for (int i = 0; i < batch; ++i) {
      peer.call(i);
      const auto after = Clock::now();
      if (done >= 0) times.push_back(std::chrono::duration<double, std::micro>(after - before).count());
      before = after;
    }
    peer.barrier();
    if (slots.count_wrong(batch, expected) != 0) {
      std::fprintf(stderr, "error: wrong result on rank %d\n", rank);
      std::exit(7);
    }
    done += batch;
  }
  peer.slowest(times);
  return times;
}

// Reduces the number of calls for large sizes.
inline int calls_for(std::size_t bytes, int calls) {
  if (bytes >= std::size_t{16} << 20) return std::max(calls / 8, 3);
  if (bytes >= std::size_t{1} << 20) return std::max(calls / 2, 5);
  return calls;
}

// Prints calls,median_us,mean_us,min_us.
inline void print_times(std::vector<double> times) {
  double sum = 0;
  for (double time : times) sum += time;
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  const double median = times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
  std::printf("%zu,%.3f,%.3f,%.3f\n", times.size(), median, sum / static_cast<double>(times.size()), times.front());
  std::fflush(stdout);
}

inline void print_row(const std::string& label, int ranks, std::size_t bytes, const std::vector<double>& times) {
  std::printf("%s,%d,%zu,", label.c_str(), ranks, bytes);
  print_times(times);
}

// Prints a row for a kernel's case: its name takes the place of ranks and bytes.
inline void print_kernel_row(const std::string& label, const std::string& name, const std::vector<double>& times) {
  std::printf("%s,%s,", label.c_str(), name.c_str());
  print_times(times);
}

}  // namespace lockstep::peers
