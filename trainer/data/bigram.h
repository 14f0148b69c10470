// Baselines: how well a text is predicted by counting another one. A trained model that does not beat the bigram has
// not learned to look back.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::trainer {

// Cross entropy, nats a token, of the tokens of `validation` behind its first, which have a token before them.
// With V words:
//   unigram  Q(b)     = (count(b) + 1) / (all + V)
//   bigram   P(b | a) = (count(a b) + s R(b)) / (count(a) + s): a Dirichlet prior of weight s around R (MacKay and Peto
//            1995, "A hierarchical Dirichlet language model"). The lower of two: s = 8 around the unigram, which does
//            best on text like the one counted, and s = V around even odds, which is add-one and does best elsewhere.
using Tokens = std::span<const std::int32_t>;
double unigram_entropy_nats(Tokens training, Tokens validation, std::int64_t words);
double bigram_entropy_nats(Tokens training, Tokens validation, std::int64_t words);

}  // namespace lockstep::trainer
