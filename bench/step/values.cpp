#include "bench/step/values.h"

#include <cstring>

#include "core/dtype.h"
#include "core/error.h"

namespace lockstep::step_bench {
namespace {

template <class T>
void widen(const std::vector<std::byte>& from, std::vector<float>& to) {
  for (std::size_t i = 0; i < to.size(); ++i) {
    T value;
    std::memcpy(&value, from.data() + i * sizeof(T), sizeof(T));
    to[i] = core::to_float(value);
  }
}

}  // namespace

std::vector<float> host_values(core::Device& device, const kernels::In& from) {
  std::vector<float> values(static_cast<std::size_t>(from.elems));
  std::vector<std::byte> bytes(kernels::size_bytes(from.dtype, from.elems));
  device.copy_to_host(bytes.data(), from.data, bytes.size());
  switch (from.dtype) {
    case core::DType::bf16:
      widen<core::BFloat16>(bytes, values);
      break;
    case core::DType::f16:
      widen<core::Float16>(bytes, values);
      break;
    default:
      LOCKSTEP_CHECK(from.dtype == core::DType::f32, "values in f32, bf16 or f16");
      std::memcpy(values.data(), bytes.data(), bytes.size());
  }
  return values;
}

}  // namespace lockstep::step_bench
