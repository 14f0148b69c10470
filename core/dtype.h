// Element types and reduction operations that collectives and kernels know, by nccl-tests' names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lockstep::core {

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

}  // namespace lockstep::core
