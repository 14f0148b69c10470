// Parts shared by programs that time other libraries (peers). Collectives are timed as the sweeps time ours
// (bench/collective_perf/trial.h): a batch of calls that fits into 1 MiB, each with its own buffers that were written
// just before, runs between two barriers; every call is timed, and its time is the time of its slowest rank. Products
// and streams rotate over operands that exceed the caches. Standard library only: peers are built by their own
// compilers.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
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

inline double median(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
}

// The row that every peer prints: label,case,calls,median_us,mean_us,min_us.
inline void print_row(const std::string& label, const std::string& name, const std::vector<double>& times) {
  const double sum = std::accumulate(times.begin(), times.end(), 0.0);
  std::printf("%s,%s,%zu,%.3f,%.3f,%.3f\n", label.c_str(), name.c_str(), times.size(), median(times),
              sum / static_cast<double>(times.size()), *std::min_element(times.begin(), times.end()));
  std::fflush(stdout);
}

inline void print_row(const std::string& label, int ranks, std::size_t bytes, const std::vector<double>& times) {
  print_row(label, "all_reduce/" + std::to_string(ranks) + "/" + std::to_string(bytes), times);
}

// Memory of several sets of `set_bytes` that together exceed `cold_bytes` (0: one set), in huge pages and written once.
class ColdSets {
 public:
  ColdSets(std::size_t set_bytes, std::size_t cold_bytes, int fill, bool odd_number = false)
      : number_(std::max<std::size_t>((cold_bytes + set_bytes - 1) / set_bytes, 1) | std::size_t{odd_number}),
        set_bytes_(set_bytes),
        memory_(static_cast<char*>(::operator new[](number_* set_bytes_, std::align_val_t{2 << 20}))) {
    madvise(memory_, number_ * set_bytes_, MADV_HUGEPAGE);
    std::memset(memory_, fill, number_ * set_bytes_);
  }
  ~ColdSets() { ::operator delete[](memory_, std::align_val_t{2 << 20}); }
  ColdSets(const ColdSets&) = delete;
  ColdSets& operator=(const ColdSets&) = delete;
  char* operator[](std::size_t call) const { return memory_ + call % number_ * set_bytes_; }

 private:
  std::size_t number_;
  std::size_t set_bytes_;
  char* memory_;
};

// Calls run(thread) on each of the threads; the calling thread is thread 0.
template <class Run>
void run_on_threads(int threads, const Run& run) {
  std::vector<std::jthread> others;
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(run, thread);
  run(0);
}

inline std::size_t begin_of_part(std::size_t whole, int part, int parts) {
  return whole * static_cast<std::size_t>(part) / static_cast<std::size_t>(parts);
}

// A row-major product c[m, n] = op(a) op(b) (+ c): forward x w^T, input gradient dy w, weight gradient dy^T x + dw.
struct Product {
  std::string name;
  bool bf16 = false;
  std::size_t m = 0, n = 0, k = 0;
  bool transpose_a = false;  // a is [k, m]
  bool transpose_b = false;  // b is [n, k]
  bool accumulate = false;   // c is then f32

  std::size_t a_bytes() const { return m * k * (bf16 ? 2 : 4); }
  std::size_t b_bytes() const { return k * n * (bf16 ? 2 : 4); }
  std::size_t c_bytes() const { return m * n * (bf16 && !accumulate ? 2 : 4); }
};

struct Operands {
  void* a;
  void* b;
  void* c;
};

inline std::size_t number_after(const std::string& text, const std::string& letter) {
  return std::strtoull(text.c_str() + text.find(letter) + letter.size(), nullptr, 10);
}

inline Product parse_product(const std::string& name) {
  const std::string shape = name.substr(name.find("/N"));
  const std::size_t rows = number_after(shape, "/N");
  const std::size_t inputs = number_after(shape, "_C");
  const std::size_t outputs = number_after(shape, "_O");
  Product product{name, name.find("/bf16/") != std::string::npos};
  if (name.rfind("gemm_fwd", 0) == 0) {
    product.m = rows, product.n = outputs, product.k = inputs, product.transpose_b = true;
  } else if (name.rfind("gemm_dgrad", 0) == 0) {
    product.m = rows, product.n = inputs, product.k = outputs;
  } else {
    product.m = outputs, product.n = inputs, product.k = rows, product.transpose_a = product.accumulate = true;
  }
  return product;
}

// Operands of the calls of a product. They are filled with small numbers (0x3c3c is about 0.01 as bf16 and as the upper
// half of an f32).
class OperandSets {
 public:
  OperandSets(const Product& product, std::size_t cold_bytes)
      : offsets_{0, line(product.a_bytes()), line(product.a_bytes()) + line(product.b_bytes())},
        sets_(offsets_[2] + line(product.c_bytes()), cold_bytes, 0x3c) {}
  Operands operator[](std::size_t call) const {
    return {sets_[call] + offsets_[0], sets_[call] + offsets_[1], sets_[call] + offsets_[2]};
  }

 private:
  static std::size_t line(std::size_t bytes) { return (bytes + 127) / 128 * 128 + 640; }
  std::size_t offsets_[3];
  ColdSets sets_;
};

using Multiply = std::function<void(const Operands&)>;

// The program of a GEMM library: X_gemm COLD_BYTES MILLISECONDS NAME..., with names such as
// gemm_fwd/f32/N1024_C256_O768/cold. Prints a row per product, whose operands rotate beyond the caches.
// `prepare` makes a product ready to run, or returns nothing if the library does not support its dtype.
inline int gemm_peer(int argc, char** argv, const char* label, const std::function<Multiply(const Product&)>& prepare) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s COLD_BYTES MILLISECONDS NAME...\n", argv[0]);
    return 6;
  }
  using Clock = std::chrono::steady_clock;
  for (int i = 3; i < argc; ++i) {
    const Product product = parse_product(argv[i]);
    const Multiply multiply = prepare(product);
    if (!multiply) continue;
    const OperandSets sets(product, std::strtoull(argv[1], nullptr, 10));
    std::vector<double> times;
    const auto end = Clock::now() + std::chrono::duration<double, std::milli>(std::atof(argv[2]));
    for (std::size_t call = 0; call < 7 || Clock::now() < end; ++call) {
      const Operands operands = sets[call];
      const auto before = Clock::now();
      multiply(operands);
      if (call >= 2) times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
    }
    print_row(label, product.name, times);
  }
  return 0;
}

}  // namespace lockstep::peers
