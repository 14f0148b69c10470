#include "kernels/reduce/reduction.h"

#include <limits>

#include "kernels/base/thread_pool.h"
#include "kernels/reduce/reduce.h"

namespace lockstep::kernels {
namespace {

constexpr std::int64_t kGrain = 1024;  // elements

bool is_sum(core::ReduceOp op) {
  return op == core::ReduceOp::sum || op == core::ReduceOp::avg;
}

// Returns element number `elem` of `view`.
template <class View>
auto address(const View& view, std::int64_t elem) {
  return view.template as<std::conditional_t<std::is_same_v<View, In>, const std::byte, std::byte>>() +
         size_bytes(view.dtype, elem);
}

}  // namespace

void Reduction::check_shape() const {
  check_sizes(name(), {{"count", count}, {"num_sources", num_sources}});
  check_at_least(name(), "average_over", average_over, 0);
  check_at_most(name(), "average_over", average_over, std::numeric_limits<int>::max());
  if (average_over > 0 && !is_sum(op)) {
    throw core::usage_error("reduction: average_over is " + std::to_string(average_over) + " with " +
                            std::string(core::name_of(op)) + "; allowed: with sum and avg");
  }
  if (static_cast<std::int64_t>(sources.size()) > num_sources) {
    throw core::usage_error("reduction: " + std::to_string(sources.size()) + " sources are given; its shape requires " +
                            std::to_string(num_sources));
  }
}

Cost cost_of(const Reduction& args) {
  const bool calculates = is_sum(args.op) || args.op == core::ReduceOp::prod;
  std::int64_t flops = 0;
  if (core::is_floating(args.dtype)) {
    flops = (calculates ? args.num_sources - 1 : 0) + (args.average_over > 0 ? 1 : 0);
  }
  return cost_of_operands(static_cast<double>(flops) * static_cast<double>(args.count), args);
}

void run_cpu(const Reduction& args, ThreadPool& pool) {
  const bool bypass_cache = pool.kept<Caches>().outgrown_by(size_bytes(args.dtype, args.count));
  pool.for_ranges(args.count, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<const void*> sources;
    for (const In& source : args.sources) sources.push_back(address(source, begin));
    void* const destination = address(args.destination, begin);
    reduce({.dtype = args.dtype,
            .op = args.op,
            .destinations = {&destination, 1},
            .sources = sources,
            .count = end - begin,
            .average_over = static_cast<int>(args.average_over),
            .bypass_cache = bypass_cache});
  });
}

}  // namespace lockstep::kernels
