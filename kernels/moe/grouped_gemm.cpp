#include "kernels/moe/grouped_gemm.h"

#include <algorithm>
#include <numeric>

#include "kernels/gemm/gemm_choice.h"
#include "kernels/gemm/gemm_product.h"

namespace lockstep::kernels {
namespace {

// Returns `count` rows of a matrix, beginning with row `first`.
template <class View>
View rows_from(const View& view, std::int64_t first, std::int64_t count, std::int64_t columns) {
  View part = view;
  if (view.data != nullptr) part.data = view.template as<std::byte>() + size_bytes(view.dtype, first * columns);
  part.elems = count * columns;
  return part;
}

// Calls visit(group, first row, rows) for each group that has rows.
template <class Visit>
void for_groups(const GroupedShape& shape, Visit&& visit) {
  std::int64_t first = 0;
  for (std::size_t g = 0; g < shape.groups(); first += shape.rows[g++]) {
    if (shape.rows[g] > 0) visit(g, first, shape.rows[g]);
  }
}

template <class Args>
double flops_of_groups(const Args& args) {
  double flops = 0;
  for (const auto& group : groups_of(args)) flops += cost_of(group).flops;
  return flops;
}

template <class Group>
void run_products(const std::vector<Group>& groups, ThreadPool& pool) {
  std::vector<Product> products;
  products.reserve(groups.size());
  for (const Group& group : groups) products.push_back(product_of(group));
  GemmChoice::of(pool).run_ragged(products, pool);
}

template <class View>
View view_of(const std::vector<View>& views, std::size_t g) {
  return g < views.size() ? views[g] : View{};
}

}  // namespace

std::int64_t GroupedShape::all_rows() const {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

void GroupedShape::check(std::string_view kernel) const {
  check_at_least(kernel, "groups", static_cast<std::int64_t>(groups()), 1);
  check_at_least(kernel, "the least rows of a group", *std::min_element(rows.begin(), rows.end()), 0);
  check_sizes(kernel, {{"rows", all_rows()}, {"inputs", inputs}, {"outputs", outputs}});
}

std::vector<GemmForward> groups_of(const GroupedGemmForward& args) {
  std::vector<GemmForward> groups;
  const std::int64_t in = args.shape.inputs;
  const std::int64_t out = args.shape.outputs;
  for_groups(args.shape, [&](std::size_t g, std::int64_t first, std::int64_t count) {
    groups.push_back({.shape = {count, in, out},
                      .epilogue = args.epilogue,
                      .x = rows_from(args.x, first, count, in),
                      .w = view_of(args.w, g),
                      .bias = view_of(args.bias, g),
                      .pre = rows_from(args.pre, first, count, out),
                      .y = rows_from(args.y, first, count, out)});
  });
  return groups;
}

std::vector<GemmInputGradient> groups_of(const GroupedGemmInputGradient& args) {
  std::vector<GemmInputGradient> groups;
  const std::int64_t in = args.shape.inputs;
  const std::int64_t out = args.shape.outputs;
  for_groups(args.shape, [&](std::size_t g, std::int64_t first, std::int64_t count) {
    groups.push_back({.shape = {count, in, out},
                      .through_gelu = args.through_gelu,
                      .dy = rows_from(args.dy, first, count, out),
                      .w = view_of(args.w, g),
                      .pre = rows_from(args.pre, first, count, in),
                      .dx = rows_from(args.dx, first, count, in)});
  });
  return groups;
}

std::vector<GemmWeightGradient> groups_of(const GroupedGemmWeightGradient& args) {
  std::vector<GemmWeightGradient> groups;
  const std::int64_t in = args.shape.inputs;
  const std::int64_t out = args.shape.outputs;
  for_groups(args.shape, [&](std::size_t g, std::int64_t first, std::int64_t count) {
    groups.push_back({.shape = {count, in, out},
                      .with_bias = args.with_bias,
                      .x = rows_from(args.x, first, count, in),
                      .dy = rows_from(args.dy, first, count, out),
                      .dw = view_of(args.dw, g),
                      .dbias = view_of(args.dbias, g)});
  });
  return groups;
}

Cost cost_of(const GroupedGemmForward& args) {
  return cost_of_operands(flops_of_groups(args), args);
}

Cost cost_of(const GroupedGemmInputGradient& args) {
  return cost_of_operands(flops_of_groups(args), args);
}

Cost cost_of(const GroupedGemmWeightGradient& args) {
  return cost_of_operands(flops_of_groups(args), args);
}

void run_cpu(const GroupedGemmForward& args, ThreadPool& pool) {
  run_products(groups_of(args), pool);
}

void run_cpu(const GroupedGemmInputGradient& args, ThreadPool& pool) {
  run_products(groups_of(args), pool);
}

void run_cpu(const GroupedGemmWeightGradient& args, ThreadPool& pool) {
  const std::vector<GemmWeightGradient> groups = groups_of(args);
  run_products(groups, pool);
  if (!args.with_bias) return;
  for (const GemmWeightGradient& group : groups) {
    add_column_sums(rows_of(group.dy, group.shape.outputs), group.shape.rows, group.shape.outputs,
                    group.dbias.as<float>(), pool);
  }
}

}  // namespace lockstep::kernels
