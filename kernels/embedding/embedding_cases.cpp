#include "kernels/registry.h"

#include <fmt/format.h>

#include <array>

#include "kernels/base/kernel_case.h"
#include "kernels/embedding/embedding.h"

namespace lockstep::kernels {
namespace {

struct Shape {
  std::int64_t tokens;
  std::int64_t length;
  std::int64_t vocabulary;
  std::int64_t columns;
  std::int64_t first_id = 0;
  std::int64_t rows = 0;  // rows of the shard; 0: the whole vocabulary
  std::int64_t table_rows() const { return rows == 0 ? vocabulary : rows; }
  std::string name() const {
    return fmt::format("N{}_T{}_V{}_C{}", tokens, length, vocabulary, columns) +
           (rows == 0 ? "" : fmt::format("_from{}", first_id));
  }
};

template <class Args>
Args args_of(const Shape& shape, core::DType dtype) {
  return shaped(Args{.tokens = shape.tokens,
                     .length = shape.length,
                     .rows = shape.table_rows(),
                     .columns = shape.columns,
                     .first_id = shape.first_id},
                dtype);
}

void add(std::vector<KernelCase>& cases, const Shape& shape, core::DType dtype) {
  cases.push_back(case_of(args_of<EmbeddingForward>(shape, dtype), shape.vocabulary));
  cases.push_back(case_of(args_of<EmbeddingBackward>(shape, dtype), shape.vocabulary));
}

template <class Args>
CaseFacts facts(const Args& args, std::int64_t vocabulary, core::DType dtype) {
  const bool whole = vocabulary == 0 || (args.first_id == 0 && args.rows == vocabulary);
  const Shape shape{args.tokens,  args.length,   vocabulary == 0 ? args.first_id + args.rows : vocabulary,
                    args.columns, args.first_id, whole ? 0 : args.rows};
  return {.shape = shape.name(),
          .dtype = dtype,
          .draws = {{"ids", {.kind = Draw::Kind::index, .below = shape.vocabulary}}},
          .terms = {{"y", 2}, {"dtable", shape.tokens}, {"dpositions", shape.tokens}}};
}

}  // namespace

KernelCase case_of(const EmbeddingForward& args, std::int64_t vocabulary) {
  return make_shaped_case(args, facts(args, vocabulary, args.y.dtype));
}

KernelCase case_of(const EmbeddingBackward& args, std::int64_t vocabulary) {
  return make_shaped_case(args, facts(args, vocabulary, args.dy.dtype));
}

std::vector<KernelCase> embedding_test_cases() {
  constexpr std::array kShapes{Shape{1, 0, 1, 1},     Shape{3, 3, 2, 17},           Shape{24, 8, 10, 64},
                               Shape{20, 0, 7, 127},  Shape{30, 7, 5, 131},         Shape{24, 8, 40, 33, 10, 13},
                               Shape{9, 0, 9, 96, 7}, Shape{16, 4, 100, 65, 99, 1}, Shape{257, 128, 1000, 48}};
  return cases_of(kActivationDTypes, kShapes, add);
}

std::vector<KernelCase> embedding_bench_cases() {
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const Tokens& tokens : kBenchTokens) {
      const std::int64_t vocabulary = tokens.channels == 256 ? 512 : 50304;  // the small model's and GPT-2's
      add(cases, {tokens.rows(), tokens.length, vocabulary, tokens.channels}, dtype);
    }
  }
  return cases;
}

}  // namespace lockstep::kernels
