#include <cstring>

#include "core/dtype.h"
#include "kernels/reduce/reduce.h"

namespace lockstep::kernels {

void reduce_reference(const ReduceArgs& args) {
  const auto count = static_cast<std::size_t>(args.count);
  const std::size_t size_bytes = count * core::size_of(args.dtype);
  void* first = args.destinations[0];
  std::memmove(first, args.sources[0], size_bytes);
  for (std::size_t k = 1; k < args.sources.size(); ++k) {
    core::reduce_scalar(args.dtype, args.op, first, first, args.sources[k], count);
  }
  if (args.average_over > 0) core::finish_average(args.dtype, first, count, args.average_over);
  for (void* destination : args.destinations.subspan(1)) std::memcpy(destination, first, size_bytes);
}

}  // namespace lockstep::kernels
