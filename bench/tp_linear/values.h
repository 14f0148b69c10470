// Tensors of random values, of which every rank makes its share, and their copies on the host.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "parallel/memory/memory.h"
#include "workload/parameter.h"

namespace lockstep::tp_linear {

inline constexpr std::uint64_t kSeed = 1;  // for all values

// Normal values with this deviation, rounded to the dtype; padding is zero. The same for every split.
parallel::Tensor random_share(parallel::Memory& memory, core::DType dtype, const workload::Parameter& whole,
                              workload::TensorPlace place);
// The same if a share of `elems` elements is in `runs` of the whole: calls its argument with (share_begin, whole_begin,
// count).
using Runs = std::function<void(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>&)>;
parallel::Tensor random_runs(parallel::Memory& memory, core::DType dtype, const workload::Parameter& whole,
                             std::int64_t elems, const Runs& runs);
// `count` random numbers in [0, below).
std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t below);
parallel::Tensor ids_of(parallel::Memory& memory, const std::vector<std::int32_t>& ids);

std::vector<float> host_values(parallel::Memory& memory, const parallel::Tensor& tensor);  // a tensor of f32 or bf16
void set_bytes(parallel::Memory& memory, const parallel::Tensor& tensor, unsigned char byte);

}  // namespace lockstep::tp_linear
