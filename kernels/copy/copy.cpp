#include "kernels/copy/copy.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

namespace lockstep::kernels {
namespace {
constexpr std::int64_t kGrainElems = 4096;
}  // namespace

void CopyRows::check_shape() const {
  check_sizes(name(), {{"rows", rows}, {"columns", columns}});
  if (from_stride != 0) check_at_least(name(), "from_stride", from_stride, columns);
  if (to_stride != 0) check_at_least(name(), "to_stride", to_stride, columns);
}

Cost cost_of(const CopyRows& args) {
  return cost_of_operands(0, args);
}

void run_cpu(const CopyRows& args, ThreadPool& pool) {
  const auto size = static_cast<std::int64_t>(core::size_of(args.from.dtype));
  const auto row_bytes = static_cast<std::size_t>(args.columns * size);
  const std::int64_t grain = std::max<std::int64_t>(1, kGrainElems / args.columns);
  pool.for_ranges(args.rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::memcpy(args.to.as<std::byte>() + r * args.to_row() * size,
                  args.from.as<std::byte>() + r * args.from_row() * size, row_bytes);
    }
  });
}

}  // namespace lockstep::kernels
