#include "trainer/data/synthetic.h"

#include <array>
#include <cstddef>
#include <string_view>

#include "core/random.h"

namespace lockstep::trainer {
namespace {

constexpr std::string_view kLetters = "etaoinshrdlu ,.\n";
constexpr std::uint64_t kNumLetters = kLetters.size();

// Numbers of three different letters: a frequent one and two less frequent ones.
std::array<std::uint64_t, 3> followers(std::uint64_t seed, std::uint64_t a, std::uint64_t b) {
  core::Random random(core::hash64(seed, a, b));
  const std::uint64_t first = random.below(kNumLetters);
  const std::uint64_t second = 1 + random.below(kNumLetters - 1);  // distance from the first
  const std::uint64_t among_the_rest = 1 + random.below(kNumLetters - 2);
  const std::uint64_t third = among_the_rest + (among_the_rest >= second ? 1 : 0);
  return {first, (first + second) % kNumLetters, (first + third) % kNumLetters};
}

using Table = std::array<std::array<std::array<std::uint64_t, 3>, kNumLetters>, kNumLetters>;

Table table_of(std::uint64_t seed) {
  Table table{};
  for (std::uint64_t a = 0; a < kNumLetters; ++a) {
    for (std::uint64_t b = 0; b < kNumLetters; ++b) table.at(a).at(b) = followers(seed, a, b);
  }
  return table;
}

}  // namespace

std::vector<std::uint8_t> synthetic_text(std::uint64_t seed, std::int64_t bytes) {
  constexpr std::array<std::size_t, 4> kWhich = {0, 0, 1, 2};
  const Table table = table_of(seed);
  core::Random random(core::hash64(seed, kNumLetters));
  std::vector<std::uint8_t> text(static_cast<std::size_t>(bytes));
  std::uint64_t before = 0;
  std::uint64_t last = 0;
  for (std::uint8_t& letter : text) {
    const std::uint64_t next = table.at(before).at(last).at(kWhich.at(random.below(kWhich.size())));
    letter = static_cast<std::uint8_t>(kLetters[next]);
    before = last;
    last = next;
  }
  return text;
}

}  // namespace lockstep::trainer
