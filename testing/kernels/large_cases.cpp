#include "testing/kernels/large_cases.h"

#include <map>
#include <string>

#include "kernels/attention_decode/attention_decode_reference.h"
#include "kernels/bucket/bucket.h"
#include "kernels/cross_entropy/cross_entropy_reference.h"
#include "kernels/embedding/embedding.h"
#include "kernels/norm/norm_reference.h"
#include "kernels/quantize/quantize.h"
#include "kernels/registry.h"
#include "kernels/softmax/softmax.h"

namespace lockstep::kernels {

std::vector<KernelCase> large_cases() {
  const std::map<std::string, std::int64_t> row_terms{{"y", kPastTheStash}, {"dx", kPastTheStash}};
  std::vector<KernelCase> cases{
      make_case(SoftmaxForward{.rows = 2, .columns = kPastTheStash}, {.shape = "past_the_stash", .terms = row_terms}),
      make_case(SoftmaxBackward{.rows = 2, .columns = kPastTheStash}, {.shape = "past_the_stash", .terms = row_terms}),
      make_case(CrossEntropy{.rows = 2, .columns = kPastTheStash, .valid_columns = kPastTheStash - 1},
                {.shape = "past_the_stash",
                 .draws = {{"targets", {.kind = Draw::Kind::index, .below = kPastTheStash - 1}}},
                 .terms = {{"losses", kPastTheStash}, {"logits", kPastTheStash}}}),
      make_case(Quantize{.count = 12345, .block = 5000}, {.shape = "a_block_of_threads_a_block"}),
      make_case(
          Dequantize{.count = 12345, .block = 5000},
          {.shape = "a_block_of_threads_a_block", .draws = {{"codes", {.kind = Draw::Kind::index, .below = 127}}}}),
      make_case(PackBucket{.scale = 0.5F, .counts = std::vector<std::int64_t>(130, 77)}, {.shape = "several_launches"}),
      make_case(UnpackBucket{.scale = 0.5F, .counts = std::vector<std::int64_t>(130, 77)},
                {.shape = "several_launches"}),
  };
  for (Norm norm : {Norm::layer, Norm::rms}) {
    for (std::int64_t columns : {std::int64_t{2048}, std::int64_t{8200}, kPastTheStash}) {
      const std::string shape = "C" + std::to_string(columns);
      const std::map<std::string, std::int64_t> terms{{"y", columns},  {"mean", columns}, {"rstd", columns},
                                                      {"dx", columns}, {"dgamma", 5},     {"dbeta", 5}};
      cases.push_back(make_case(NormForward{.norm = norm, .rows = 5, .columns = columns, .with_residual = true},
                                {.shape = shape, .terms = terms}));
      cases.push_back(make_case(NormBackward{.norm = norm, .rows = 5, .columns = columns, .with_residual = true},
                                {.shape = shape, .draws = {{"rstd", {.kind = Draw::Kind::positive}}}, .terms = terms}));
    }
  }
  // Contexts without tokens among others: their FLOPs differ from the declared ones, so no family's case has them.
  for (std::int64_t most_keys : {20, 700}) {
    const auto tokens = static_cast<double>(most_keys);
    const DecodeShape shape{.sequences = 3,
                            .heads = 4,
                            .kv_heads = 2,
                            .head_columns = 24,
                            .most_keys = most_keys,
                            .keys = most_keys,
                            .block = 16,
                            .blocks = most_keys};
    cases.push_back(make_case(AttentionDecode{.shape = shape},
                              {.shape = "no_tokens_K" + std::to_string(most_keys),
                               .draws = {{"lengths", {.kind = Draw::Kind::given, .values = {0, tokens, 0}}},
                                         {"table", {.kind = Draw::Kind::index, .below = most_keys}}},
                               .terms = {{"o", most_keys}, {"lse", most_keys}}}));
  }
  // Rows of the table with none, one, and more than one segment of 32 tokens, and with more than 256 tokens; and ids
  // outside the table.
  for (std::int64_t rows : {1, 2, 9, 1000}) {
    const std::int64_t tokens = rows == 1 ? 2500 : 300;
    cases.push_back(
        make_case(EmbeddingBackward{.tokens = tokens, .length = 7, .rows = rows, .columns = 24, .first_id = 1},
                  {.shape = "rows" + std::to_string(rows),
                   .draws = {{"ids", {.kind = Draw::Kind::index, .below = rows + 2}}},
                   .terms = {{"dtable", tokens}, {"dpositions", tokens / 7 + 1}}}));
  }
  return cases;
}

}  // namespace lockstep::kernels
