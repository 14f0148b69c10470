// Baselines: prediction of one text from counts of another. A trained model that does not beat the bigram baseline has
// not learned to use context.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep::trainer {

// Cross entropy in nats per token over the tokens of `validation` after the first. With V words:
//   unigram  Q(b)     = (count(b) + 1) / (all + V)
//   bigram   P(b | a) = (count(a b) + s R(b)) / (count(a) + s): a Dirichlet prior of weight s around R (MacKay and Peto
//            1995, "A hierarchical Dirichlet language model"). The lower of two: s = 8 around the unigram, which is
//            best on text like the counted one, and s = V around a uniform prior, which is add-one and best elsewhere.
using Tokens = std::span<const std::int32_t>;
double unigram_entropy_nats(Tokens training, Tokens validation, std::int64_t words);
double bigram_entropy_nats(Tokens training, Tokens validation, std::int64_t words);

}  // namespace lockstep::trainer
