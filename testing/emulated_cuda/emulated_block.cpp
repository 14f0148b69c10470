#include "testing/emulated_cuda/emulated_block.h"

#include <cstring>
#include <string>

#include "core/error.h"

namespace lockstep::kernels {
namespace {

constexpr std::size_t kSharedAlignment = 128;

[[noreturn]] void fail(const std::string& what) {
  throw core::Error(core::Failure::internal, "emulated block: " + what);
}

}  // namespace

EmulatedBlock::EmulatedBlock(const Options& options)
    : options_(options),
      random_(options.seed),
      memory_(options.shared_bytes + kSharedAlignment, std::byte{0xff}),
      shared_(memory_.data() + kSharedAlignment - reinterpret_cast<std::uintptr_t>(memory_.data()) % kSharedAlignment) {
}

void EmulatedBlock::run(emulated::Threads& threads, const std::function<void(EmulatedLane&)>& body) {
  threads.run(options_.threads, random_, [&](int thread) {
    EmulatedLane lane(*this, threads, thread);
    body(lane);
    lane.wait_for_copies();
  });
}

void EmulatedBlock::check_shared(const void* address, std::size_t size_bytes) const {
  const auto* const at = static_cast<const std::byte*>(address);
  if (at < shared_ || at + size_bytes > shared_ + options_.shared_bytes) fail("an address is not in shared memory");
}

void* EmulatedLane::shared() const {
  return block_.shared_;
}

float EmulatedLane::from_lane(float value, int lane) {
  const auto& words = threads_.exchange({std::bit_cast<std::uint32_t>(value)});
  return std::bit_cast<float>(words.at(static_cast<std::size_t>(lane)).front());
}

void EmulatedLane::check_aligned(const void* address, std::size_t alignment_bytes) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignment_bytes != 0) fail("an address is not aligned");
}

void EmulatedLane::perform(const Copy& copy) {
  if (copy.there) {
    std::memcpy(copy.to, copy.from, copy.size_bytes);
  } else {
    std::memset(copy.to, 0, copy.size_bytes);
  }
}

void EmulatedLane::start_copy(const Copy& copy) {
  block_.check_shared(copy.to, copy.size_bytes);
  check_aligned(copy.to, copy.size_bytes);
  check_aligned(copy.from, copy.size_bytes);
  std::memset(copy.to, 0xff, copy.size_bytes);
  if (block_.options_.late_copies) {
    copies_.push_back(copy);
  } else {
    perform(copy);
  }
}

void EmulatedLane::wait_for_copies() {
  for (const Copy& copy : copies_) perform(copy);
  copies_.clear();
}

EmulatedLane::Matrices EmulatedLane::gather_matrices(const void* row) {
  constexpr std::size_t kRowBytes = 16;
  block_.check_shared(row, kRowBytes);
  check_aligned(row, kRowBytes);
  emulated::Threads::Words mine{};
  std::memcpy(mine.data(), row, kRowBytes);
  const auto& words = threads_.exchange(mine);
  Matrices matrices;
  for (std::size_t l = 0; l < emulated::Threads::kWarp; ++l)
    std::memcpy(matrices.at(l / 8).at(l % 8).data(), words.at(l).data(), kRowBytes);
  return matrices;
}

// PTX ISA, "ldmatrix": lane l gets row l / 4, columns 2 (l % 4) and the next, of each matrix.
EmulatedLane::Fragment EmulatedLane::load_matrices(const void* row) {
  const Matrices matrices = gather_matrices(row);
  const auto l = static_cast<std::size_t>(lane());
  Fragment f{};
  for (std::size_t w = 0; w < 4; ++w) {
    const auto& of_row = matrices.at(w).at(l / 4);
    f.words[w] = of_row.at(2 * (l % 4)) | std::uint32_t{of_row.at(2 * (l % 4) + 1)} << 16;
  }
  return f;
}

EmulatedLane::Fragment EmulatedLane::load_matrices_transposed(const void* row) {
  const Matrices matrices = gather_matrices(row);
  const auto l = static_cast<std::size_t>(lane());
  Fragment f{};
  for (std::size_t w = 0; w < 4; ++w) {
    const auto& m = matrices.at(w);
    f.words[w] = m.at(2 * (l % 4)).at(l / 4) | std::uint32_t{m.at(2 * (l % 4) + 1).at(l / 4)} << 16;
  }
  return f;
}

std::uint32_t EmulatedLane::load_word(const void* from) {
  check_aligned(from, sizeof(std::uint32_t));
  std::uint32_t word = 0;
  std::memcpy(&word, from, sizeof word);
  return word;
}

void EmulatedLane::store_words(void* to, const std::uint32_t (&words)[4]) {
  check_aligned(to, sizeof words);
  std::memcpy(to, words, sizeof words);
}

// PTX ISA, "Matrix fragments for mma.m16n8k16 with floating point type". With group = lane / 4 and t = lane % 4:
// a: element i of 8 is in row group (+ 8 for i = 2, 3, 6, 7), column 2 t + i % 2 (+ 8 for i of 4 and more).
// b: element i of 4 is in row 2 t + i % 2 (+ 8 for i = 2, 3), column group.
// sums: element i of 4 is in row group (+ 8 for i = 2, 3), column 2 t + i % 2.
void EmulatedLane::multiply_add(float (&sums)[4], const Fragment& a, std::uint32_t b0, std::uint32_t b1,
                                float (*value)(std::uint16_t bits)) {
  const auto& words = threads_.exchange({a.words[0], a.words[1], a.words[2], a.words[3], b0, b1});
  const auto element = [&](std::size_t lane, std::size_t i) {
    return value(static_cast<std::uint16_t>(words.at(lane).at(i / 2) >> (16 * (i % 2))));
  };
  const auto of_a = [&](std::size_t row, std::size_t k) {
    return element(row % 8 * 4 + k % 8 / 2, k % 2 + (row >= 8 ? 2 : 0) + (k >= 8 ? 4 : 0));
  };
  const auto of_b = [&](std::size_t k, std::size_t column) {
    return element(column * 4 + k % 8 / 2, 8 + k % 2 + (k >= 8 ? 2 : 0));
  };
  const auto l = static_cast<std::size_t>(lane());
  for (std::size_t i = 0; i < 4; ++i) {
    const std::size_t row = l / 4 + (i >= 2 ? 8 : 0);
    const std::size_t column = 2 * (l % 4) + i % 2;
    for (std::size_t k = 0; k < 16; ++k) sums[i] += of_a(row, k) * of_b(k, column);
  }
}

}  // namespace lockstep::kernels
