#include "trainer/data/bigram.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include "core/error.h"

namespace lockstep::trainer {
namespace {

constexpr std::size_t kWords = 256;

using ByWord = std::array<double, kWords>;

ByWord unigram(std::span<const std::uint8_t> text) {
  ByWord all;
  all.fill(1);
  for (const std::uint8_t token : text) all.at(token) += 1;
  for (double& p : all) p /= static_cast<double>(text.size() + kWords);
  return all;
}

double mean_nats(std::span<const std::uint8_t> text,
                 const std::function<double(std::uint8_t before, std::uint8_t token)>& probability) {
  LOCKSTEP_CHECK(text.size() > 1, "a text of two tokens at least");
  double sum = 0;
  for (std::size_t k = 1; k < text.size(); ++k) sum -= std::log(probability(text[k - 1], text[k]));
  return sum / static_cast<double>(text.size() - 1);
}

struct PairCounts {
  std::vector<ByWord> pairs = std::vector<ByWord>(kWords, ByWord{});
  ByWord before{};  // how often a token has another one behind it
};

PairCounts count_pairs(std::span<const std::uint8_t> text) {
  PairCounts counts;
  for (std::size_t k = 1; k < text.size(); ++k) {
    counts.pairs[text[k - 1]].at(text[k]) += 1;
    counts.before.at(text[k - 1]) += 1;
  }
  return counts;
}

}  // namespace

double unigram_entropy_nats(std::span<const std::uint8_t> training, std::span<const std::uint8_t> validation) {
  const ByWord words = unigram(training);
  return mean_nats(validation, [&](std::uint8_t, std::uint8_t token) { return words.at(token); });
}

double bigram_entropy_nats(std::span<const std::uint8_t> training, std::span<const std::uint8_t> validation) {
  const PairCounts counts = count_pairs(training);
  ByWord even;
  even.fill(1.0 / kWords);
  const auto entropy = [&](double weight, const ByWord& prior) {
    return mean_nats(validation, [&](std::uint8_t a, std::uint8_t b) {
      return (counts.pairs[a].at(b) + weight * prior.at(b)) / (counts.before.at(a) + weight);
    });
  };
  return std::min(entropy(8, unigram(training)), entropy(kWords, even));
}

}  // namespace lockstep::trainer
