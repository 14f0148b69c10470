// Code that GEMM peers share: shapes by the names of our cases, operands that rotate beyond the caches, timing.
//   X_gemm COLD_BYTES MILLISECONDS NAME...       NAME is, for example, gemm_fwd/f32/N1024_C256_O768/cold
// Prints label,name,calls,median_us,mean_us,min_us.
#pragma once

#include <sys/mman.h>

#include <cstring>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "bench/peers/peer_timing.h"

namespace lockstep::peers {

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

// Sets of operands that together exceed `cold_bytes`, in huge pages, filled with small numbers (0x3c3c is about 0.01 as
// bf16 and as the upper half of an f32).
class OperandSets {
 public:
  OperandSets(const Product& product, std::size_t cold_bytes)
      : offsets_{0, line(product.a_bytes()), line(product.a_bytes()) + line(product.b_bytes())},
        set_bytes_(offsets_[2] + line(product.c_bytes())),
        number_(std::max<std::size_t>((cold_bytes + set_bytes_ - 1) / set_bytes_, 1)),
        memory_(static_cast<char*>(::operator new[](number_* set_bytes_, std::align_val_t{2 << 20}))) {
    madvise(memory_, number_ * set_bytes_, MADV_HUGEPAGE);
    std::memset(memory_, 0x3c, number_ * set_bytes_);
  }
  ~OperandSets() { ::operator delete[](memory_, std::align_val_t{2 << 20}); }
  OperandSets(const OperandSets&) = delete;
  OperandSets& operator=(const OperandSets&) = delete;

  Operands operator[](std::size_t call) const {
    char* const set = memory_ + call % number_ * set_bytes_;
    return {set + offsets_[0], set + offsets_[1], set + offsets_[2]};
  }

 private:
  static std::size_t line(std::size_t bytes) { return (bytes + 127) / 128 * 128 + 640; }
  std::size_t offsets_[3];
  std::size_t set_bytes_;
  std::size_t number_;
  char* memory_;
};

using Multiply = std::function<void(const Operands&)>;

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
    print_kernel_row(label, product.name, times);
  }
  return 0;
}

}  // namespace lockstep::peers
