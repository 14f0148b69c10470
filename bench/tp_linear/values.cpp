#include "bench/tp_linear/values.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "core/error.h"
#include "core/narrow_float.h"
#include "core/random.h"
#include "parallel/parameters/initial_values.h"

namespace lockstep::tp_linear {
namespace {

std::size_t size_of(const parallel::Tensor& tensor) {
  return static_cast<std::size_t>(tensor.bytes());
}

void to_device(parallel::Memory& memory, const parallel::Tensor& to, const std::vector<float>& values) {
  if (to.dtype() == core::DType::f32) return memory.device().copy_to_device(to.data(), values.data(), size_of(to));
  LOCKSTEP_CHECK(to.dtype() == core::DType::bf16, "values in f32 or bf16");
  std::vector<core::BFloat16> narrow(values.size());
  std::transform(values.begin(), values.end(), narrow.begin(), core::to_bfloat16);
  memory.device().copy_to_device(to.data(), narrow.data(), size_of(to));
}

}  // namespace

parallel::Tensor random_share(parallel::Memory& memory, core::DType dtype, const workload::Parameter& whole,
                              workload::TensorPlace place) {
  return random_runs(memory, dtype, whole, workload::elems_of_share(whole, place.ranks),
                     [&](const auto& visit) { workload::for_each_run(whole, place, visit); });
}

parallel::Tensor random_runs(parallel::Memory& memory, core::DType dtype, const workload::Parameter& whole,
                             std::int64_t elems, const Runs& runs) {
  std::vector<float> values(static_cast<std::size_t>(elems));
  runs([&](std::int64_t to, std::int64_t from, std::int64_t count) {
    const std::span all(values);
    parallel::fill_initial_values(whole, kSeed, from,
                                  all.subspan(static_cast<std::size_t>(to), static_cast<std::size_t>(count)));
  });
  parallel::Tensor made =
      memory.make(parallel::MemoryKind::activations, dtype, static_cast<std::int64_t>(values.size()));
  to_device(memory, made, values);
  return made;
}

std::vector<std::int32_t> random_ids(std::int64_t count, std::int64_t below) {
  std::vector<std::int32_t> ids(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ids[i] = static_cast<std::int32_t>(core::hash64(kSeed, 0, i) % static_cast<std::uint64_t>(below));
  }
  return ids;
}

parallel::Tensor ids_of(parallel::Memory& memory, const std::vector<std::int32_t>& ids) {
  parallel::Tensor made =
      memory.make(parallel::MemoryKind::buffers, core::DType::i32, static_cast<std::int64_t>(ids.size()));
  memory.device().copy_to_device(made.data(), ids.data(), size_of(made));
  return made;
}

std::vector<float> host_values(parallel::Memory& memory, const parallel::Tensor& tensor) {
  std::vector<float> values(static_cast<std::size_t>(tensor.elems()));
  if (tensor.dtype() == core::DType::f32) {
    memory.device().copy_to_host(values.data(), tensor.data(), size_of(tensor));
    return values;
  }
  LOCKSTEP_CHECK(tensor.dtype() == core::DType::bf16, "values in f32 or bf16");
  std::vector<core::BFloat16> narrow(values.size());
  memory.device().copy_to_host(narrow.data(), tensor.data(), size_of(tensor));
  std::transform(narrow.begin(), narrow.end(), values.begin(), [](core::BFloat16 x) { return core::to_float(x); });
  return values;
}

void set_bytes(parallel::Memory& memory, const parallel::Tensor& tensor, unsigned char byte) {
  const std::vector<unsigned char> bytes(size_of(tensor), byte);
  memory.device().copy_to_device(tensor.data(), bytes.data(), bytes.size());
}

}  // namespace lockstep::tp_linear
