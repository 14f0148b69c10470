// Baselines: how well a text is predicted by counting another one. A trained model that does not beat the bigram has
// not learned to look back.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::trainer {

// Cross entropy, nats a token, of the tokens of `validation` behind its first, which have a token before them.
//   unigram  Q(b)     = (count(b) + 1) / (all + 256)
//   bigram   P(b | a) = (count(a b) + s R(b)) / (count(a) + s): a Dirichlet prior of weight s around R (MacKay and Peto
//            1995, "A hierarchical Dirichlet language model"). The lower of two: s = 8 around the unigram, which does
//            best on text like the one counted, and s = 256 around even odds, which is add-one and does best elsewhere.
double unigram_entropy_nats(std::span<const std::uint8_t> training, std::span<const std::uint8_t> validation);
double bigram_entropy_nats(std::span<const std::uint8_t> training, std::span<const std::uint8_t> validation);

}  // namespace lockstep::trainer
