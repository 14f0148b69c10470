#include "kernels/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/base/kernel_case.h"
#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/cross_entropy/cross_entropy_reference.h"

namespace lockstep::kernels {
namespace {

struct Shape {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t valid_columns;
  std::string name() const {
    return fmt::format("R{}_V{}", rows, columns) +
           (valid_columns == columns ? "" : fmt::format("_of{}", valid_columns));
  }
};

Draw ids_below(std::int64_t end) {
  return {.kind = Draw::Kind::index, .below = end};
}
constexpr Draw kLogits{.scale = 3};

// One of `shards` shards of a vocabulary; all are as long as this one except the last.
struct Shard {
  Shape shape;
  std::int64_t shards;
  std::int64_t index;
  std::int64_t first_id() const { return index * shape.columns; }
  std::string name() const { return fmt::format("{}_shard{}of{}", shape.name(), index, shards); }
  std::map<std::string, Draw> draws() const {
    return {{"targets", ids_below(shards * shape.columns)}, {"logits", kLogits}};
  }
};

template <class Args>
Shard shard_of(const Args& args, std::int64_t shards) {
  return {{args.rows, args.columns, args.valid_columns}, shards, args.first_id / args.columns};
}

void add_whole(std::vector<KernelCase>& cases, const Shape& shape, core::DType dtype) {
  cases.push_back(case_of(shaped(CrossEntropy{.rows = shape.rows,
                                              .columns = shape.columns,
                                              .valid_columns = shape.valid_columns,
                                              .scale = 1.0F / static_cast<float>(shape.rows)},
                                 dtype)));
}

void add_shard(std::vector<KernelCase>& cases, const Shard& shard, core::DType dtype) {
  const Shape& shape = shard.shape;
  cases.push_back(case_of(shaped(CrossEntropyStats{.rows = shape.rows,
                                                   .columns = shape.columns,
                                                   .valid_columns = shape.valid_columns,
                                                   .first_id = shard.first_id()},
                                 dtype),
                          shard.shards));
  cases.push_back(case_of(shaped(CrossEntropyFinish{.rows = shape.rows,
                                                    .columns = shape.columns,
                                                    .valid_columns = shape.valid_columns,
                                                    .first_id = shard.first_id(),
                                                    .shards = shard.shards,
                                                    .scale = 1.0F / static_cast<float>(shape.rows)},
                                 dtype)));
}

// Draws the other shards' stats and computes this one's from its logits, so that probabilities are valid.
void derive_stats(const CrossEntropyFinish& args, const Shard& shard, ReferenceData<double>& data) {
  const CrossEntropyStats own{
      .rows = args.rows, .columns = args.columns, .valid_columns = args.valid_columns, .first_id = args.first_id};
  ReferenceData<double> of_shard;
  for (const char* name : {"targets", "logits"}) {
    of_shard.add(name, std::vector<double>(data[name].begin(), data[name].end()));
  }
  of_shard.add("stats", std::vector<double>(static_cast<std::size_t>(3 * own.rows)));
  reference(own, of_shard);
  const auto stats = data["stats"];
  for (std::size_t i = 1; i < stats.size(); i += 3) stats[i] = 1 + std::fabs(stats[i]);  // sums
  std::copy(of_shard["stats"].begin(), of_shard["stats"].end(),
            stats.begin() + static_cast<std::ptrdiff_t>(3 * own.rows * shard.index));
}

}  // namespace

KernelCase case_of(const CrossEntropy& args) {
  return make_shaped_case(args, {.shape = Shape{args.rows, args.columns, args.valid_columns}.name(),
                                 .dtype = args.logits.dtype,
                                 .draws = {{"targets", ids_below(args.valid_columns)}, {"logits", kLogits}},
                                 .terms = {{"losses", args.valid_columns}, {"logits", args.valid_columns}}});
}

KernelCase case_of(const CrossEntropyStats& args, std::int64_t shards) {
  const Shard shard = shard_of(args, shards);
  return make_shaped_case(
      args,
      {.shape = shard.name(), .dtype = args.logits.dtype, .draws = shard.draws(), .terms = {{"stats", args.columns}}});
}

KernelCase case_of(const CrossEntropyFinish& args) {
  const Shard shard = shard_of(args, args.shards);
  return make_shaped_case(args, {.shape = shard.name(),
                                 .dtype = args.logits.dtype,
                                 .draws = shard.draws(),
                                 .terms = {{"losses", args.columns}, {"logits", args.columns}},
                                 .derive = [args, shard](auto& data) { derive_stats(args, shard, data); }});
}

std::vector<KernelCase> cross_entropy_test_cases() {
  constexpr std::array kWhole{Shape{1, 1, 1},     Shape{3, 17, 17},     Shape{5, 127, 120},
                              Shape{9, 512, 512}, Shape{2, 2049, 2048}, Shape{3, 5000, 4999}};
  std::vector<KernelCase> cases;
  for (core::DType dtype : kActivationDTypes) {
    for (const Shape& shape : kWhole) add_whole(cases, shape, dtype);
    for (const Shard& shard : {Shard{{3, 1, 1}, 1, 0}, Shard{{5, 43, 43}, 3, 0}, Shard{{5, 43, 41}, 3, 2},
                               Shard{{4, 2500, 0}, 2, 1}, Shard{{7, 2500, 2499}, 4, 3}}) {
      add_shard(cases, shard, dtype);
    }
  }
  return cases;
}

std::vector<KernelCase> cross_entropy_bench_cases() {
  constexpr std::array kWhole{Shape{1024, 512, 512}, Shape{256, 50304, 50257}, Shape{2048, 50304, 50257}};
  std::vector<KernelCase> cases;
  for (core::DType dtype : kBenchDTypes) {
    for (const Shape& shape : kWhole) add_whole(cases, shape, dtype);
    const Shard half{{256, 25152, 25152}, 2, 0};
    add_shard(cases, half, dtype);
  }
  return cases;
}

}  // namespace lockstep::kernels
