// Element types, reduction operations, and the narrow floating-point formats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::core {

// Narrow floating-point formats as bits, and conversions to and from float (round to nearest, ties to even).
//   Float16   IEEE 754 binary16                        1 + 5 + 10 bits
//   BFloat16  the upper half of binary32               1 + 8 + 7
//   Float8E4M3, Float8E5M2  OCP OFP8 1.0 (2023)        1 + 4 + 3 without infinity, 1 + 5 + 2
// On overflow, binary16, bfloat16 and E5M2 become infinity; E4M3, which has no infinity, becomes NaN.

struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};
struct Float8E4M3 {
  std::uint8_t bits;
};
struct Float8E5M2 {
  std::uint8_t bits;
};

float to_float(Float16 x);
float to_float(Float8E4M3 x);
float to_float(Float8E5M2 x);

Float16 to_float16(float x);
Float8E4M3 to_float8_e4m3(float x);
Float8E5M2 to_float8_e5m2(float x);

// bfloat16 is converted so often and so simply that the loops of kernels must be able to inline it.
inline float to_float(BFloat16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}

inline BFloat16 to_bfloat16(float x) {
  const auto wide = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16;
  const std::uint32_t quiet_nan = (wide >> 16) | 0x40u;
  return {static_cast<std::uint16_t>((wide & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded)};
}

// Element types and reduction operations that collectives and kernels know, by nccl-tests' names.

enum class DType : std::uint8_t { i8, u8, i32, u32, i64, u64, f16, f32, f64, bf16, f8e4m3, f8e5m2 };
enum class ReduceOp : std::uint8_t { sum, prod, max, min, avg };

std::span<const DType> all_dtypes();         // in nccl-tests' order
std::span<const ReduceOp> all_reduce_ops();  // in nccl-tests' order

std::size_t size_of(DType dtype);             // bytes per element
std::string_view name_of(DType dtype);        // "int8", "float", "bfloat16", "f8e4m3", ...
std::string_view short_name_of(DType dtype);  // "i8", "f32", "bf16", "e4m3", ...
std::string_view name_of(ReduceOp op);        // "sum", ...
DType parse_dtype(
    std::string_view name);  // also accepts f32, bf16, ...; throws a usage Error that lists the allowed names
ReduceOp parse_reduce_op(std::string_view name);

bool is_floating(DType dtype);
// Bits of the significand including the hidden one: every integer up to 2^bits is exact. For integers, the value bits.
int significand_bits(DType dtype);
// Largest relative error of summing `terms` numbers of one sign in this type in any order: (terms - 1) u / (1 - ...),
// Higham, Accuracy and Stability of Numerical Algorithms (2002), eq. 4.4; at most 1. Zero for integers.
double sum_tolerance(DType dtype, std::size_t terms);

// The reduction of two elements for every dtype and operation: the definition shared by the references of kernels and
// the verification of collectives. Plain loops, not optimised.
//
//   integers      sum and prod wrap around (modulo 2^bits), also the signed ones
//   f32, f64      one IEEE operation
//   f16 bf16 fp8  both converted to float, one float operation, rounded back (ties to even)
//   max, min      a < b ? b : a  and  b < a ? b : a
//   avg           combines like sum; finish_average() divides the whole sum once by the number of ranks:
//                 f64 in double, other floats in float and then rounded to the dtype, integers truncating as C does

// Sets destination[i] = a[i] (op) b[i]. The pointers are aligned to the element and may be equal.
void reduce_scalar(DType dtype, ReduceOp op, void* destination, const void* a, const void* b, std::size_t count);

// Sets data[i] = data[i] / num_ranks.
void finish_average(DType dtype, void* data, std::size_t count, int num_ranks);

}  // namespace lockstep::core
