#include "trainer/train/sampling.h"

#include <algorithm>
#include <cmath>

namespace lockstep::trainer {

std::int64_t drawn_word(std::span<const float> logits, double temperature, double uniform) {
  const auto largest = std::max_element(logits.begin(), logits.end());
  if (temperature <= 0) return largest - logits.begin();
  const auto weight = [&](float logit) { return std::exp((double{logit} - double{*largest}) / temperature); };
  double total = 0;
  for (const float logit : logits) total += weight(logit);
  double left = uniform * total;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    left -= weight(logits[i]);
    if (left < 0) return static_cast<std::int64_t>(i);
  }
  return largest - logits.begin();  // reached only through rounding
}

}  // namespace lockstep::trainer
