#include "trainer/data/bigram.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <unordered_map>
#include <vector>

#include "core/error.h"

namespace lockstep::trainer {
namespace {

using ByWord = std::vector<double>;

std::size_t index_of(std::int32_t token) {
  return static_cast<std::size_t>(token);
}

ByWord unigram(Tokens text, std::int64_t words) {
  ByWord all(static_cast<std::size_t>(words), 1.0);
  for (const std::int32_t token : text) all.at(index_of(token)) += 1;
  for (double& p : all) p /= static_cast<double>(text.size()) + static_cast<double>(words);
  return all;
}

double mean_nats(Tokens text, const std::function<double(std::int32_t before, std::int32_t token)>& probability) {
  LOCKSTEP_CHECK(text.size() > 1, "a text of two tokens at least");
  double sum = 0;
  for (std::size_t k = 1; k < text.size(); ++k) sum -= std::log(probability(text[k - 1], text[k]));
  return sum / static_cast<double>(text.size() - 1);
}

class PairCounts {
 public:
  PairCounts(Tokens text, std::int64_t words) : before_(static_cast<std::size_t>(words)) {
    for (std::size_t k = 1; k < text.size(); ++k) {
      pairs_[key_of(text[k - 1], text[k])] += 1;
      before_.at(index_of(text[k - 1])) += 1;
    }
  }

  double of(std::int32_t a, std::int32_t b) const {
    const auto found = pairs_.find(key_of(a, b));
    return found == pairs_.end() ? 0 : found->second;
  }
  double before(std::int32_t a) const { return before_.at(index_of(a)); }  // how often a token is followed by another

 private:
  static std::uint64_t key_of(std::int32_t a, std::int32_t b) {
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(a)) << 32U | static_cast<std::uint32_t>(b);
  }
  std::unordered_map<std::uint64_t, double> pairs_;
  ByWord before_;
};

}  // namespace

double unigram_entropy_nats(Tokens training, Tokens validation, std::int64_t words) {
  const ByWord all = unigram(training, words);
  return mean_nats(validation, [&](std::int32_t, std::int32_t token) { return all.at(index_of(token)); });
}

double bigram_entropy_nats(Tokens training, Tokens validation, std::int64_t words) {
  const PairCounts counts(training, words);
  const auto even_odds = static_cast<double>(words);
  const auto entropy = [&](double weight, const ByWord& prior) {
    return mean_nats(validation, [&](std::int32_t a, std::int32_t b) {
      return (counts.of(a, b) + weight * prior.at(index_of(b))) / (counts.before(a) + weight);
    });
  };
  return std::min(entropy(8, unigram(training, words)),
                  entropy(even_odds, ByWord(static_cast<std::size_t>(words), 1 / even_odds)));
}

}  // namespace lockstep::trainer
