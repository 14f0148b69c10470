#include "core/dtype.h"

#include <array>
#include <cmath>

#include "core/error.h"

namespace lockstep::core {
namespace {

struct DTypeRow {
  DType dtype;
  std::string_view name;        // nccl-tests' name
  std::string_view short_name;  // the usual short name
  std::size_t size_bytes;
  bool floating;
  int significand_bits;
};

constexpr std::array kDTypes{
    DTypeRow{DType::i8, "int8", "i8", 1, false, 7},        DTypeRow{DType::u8, "uint8", "u8", 1, false, 8},
    DTypeRow{DType::i32, "int32", "i32", 4, false, 31},    DTypeRow{DType::u32, "uint32", "u32", 4, false, 32},
    DTypeRow{DType::i64, "int64", "i64", 8, false, 63},    DTypeRow{DType::u64, "uint64", "u64", 8, false, 64},
    DTypeRow{DType::f16, "half", "f16", 2, true, 11},      DTypeRow{DType::f32, "float", "f32", 4, true, 24},
    DTypeRow{DType::f64, "double", "f64", 8, true, 53},    DTypeRow{DType::bf16, "bfloat16", "bf16", 2, true, 8},
    DTypeRow{DType::f8e4m3, "f8e4m3", "e4m3", 1, true, 4}, DTypeRow{DType::f8e5m2, "f8e5m2", "e5m2", 1, true, 3},
};
constexpr std::array kDTypeOrder{DType::i8,  DType::u8,  DType::i32, DType::u32,  DType::i64,    DType::u64,
                                 DType::f16, DType::f32, DType::f64, DType::bf16, DType::f8e4m3, DType::f8e5m2};
constexpr std::array kOps{ReduceOp::sum, ReduceOp::prod, ReduceOp::max, ReduceOp::min, ReduceOp::avg};
constexpr std::array<std::string_view, 5> kOpNames{"sum", "prod", "max", "min", "avg"};

const DTypeRow& row(DType dtype) {
  return kDTypes.at(static_cast<std::size_t>(dtype));
}

}  // namespace

std::span<const DType> all_dtypes() {
  return kDTypeOrder;
}
std::span<const ReduceOp> all_reduce_ops() {
  return kOps;
}
std::size_t size_of(DType dtype) {
  return row(dtype).size_bytes;
}
std::string_view name_of(DType dtype) {
  return row(dtype).name;
}
std::string_view short_name_of(DType dtype) {
  return row(dtype).short_name;
}
std::string_view name_of(ReduceOp op) {
  return kOpNames.at(static_cast<std::size_t>(op));
}
bool is_floating(DType dtype) {
  return row(dtype).floating;
}
int significand_bits(DType dtype) {
  return row(dtype).significand_bits;
}

DType parse_dtype(std::string_view name) {
  std::string allowed;
  for (const DTypeRow& candidate : kDTypes) {
    if (name == candidate.name || name == candidate.short_name) return candidate.dtype;
    allowed += " " + std::string(candidate.name);
  }
  throw usage_error("unknown datatype '" + std::string(name) + "'; allowed:" + allowed + " all");
}

ReduceOp parse_reduce_op(std::string_view name) {
  for (ReduceOp op : kOps) {
    if (name == name_of(op)) return op;
  }
  throw usage_error("unknown operation '" + std::string(name) + "'; allowed: sum prod max min avg all");
}

double sum_tolerance(DType dtype, std::size_t terms) {
  if (!is_floating(dtype) || terms < 2) return 0;
  const double roundoff = std::ldexp(1.0, -significand_bits(dtype));
  const double product = static_cast<double>(terms - 1) * roundoff;
  return product < 0.5 ? product / (1 - product) : 1;
}

}  // namespace lockstep::core
