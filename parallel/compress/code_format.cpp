#include "parallel/compress/code_format.h"

#include <vector>

#include "core/error.h"
#include "kernels/fp8/fp8.h"
#include "kernels/quantize/quantize.h"
#include "kernels/sign/sign.h"

namespace lockstep::parallel {
namespace {

using core::DType;
using kernels::Context;
using kernels::In;
using kernels::Out;
using workload::CompressionWay;

// `Args`: arguments of a kernel, beginning with count and block, with codes of type `kCodes` and scales.
template <class Args, CompressionWay kWay, DType kCodes>
Args arguments(std::int64_t count, const std::byte* codes, const std::byte* scales) {
  const workload::CodeShape shape = workload::code_shape(kWay);
  Args args{count, shape.block};
  args.codes = {const_cast<std::byte*>(codes), kCodes, shape.code_bytes(count)};
  args.scales = {const_cast<std::byte*>(scales), DType::f32, shape.blocks(count)};
  return args;
}

template <class Args, CompressionWay kWay, DType kCodes>
void encode(const In& x, std::byte* codes, std::byte* scales, const Context& where) {
  auto args = arguments<Args, kWay, kCodes>(x.elems, codes, scales);
  args.x = x;
  kernels::run(args, where);
}

template <class Args, CompressionWay kWay, DType kCodes>
void decode(const std::byte* codes, const std::byte* scales, const Out& y, const Context& where) {
  auto args = arguments<Args, kWay, kCodes>(y.elems, codes, scales);
  args.y = y;
  kernels::run(args, where);
}

template <class Encode, class Decode, CompressionWay kWay, DType kCodes>
constexpr CodeFormat format(std::string_view name, double most_error) {
  return {name, most_error, encode<Encode, kWay, kCodes>, decode<Decode, kWay, kCodes>};
}

// Treats the elements as one row whose tiles are the blocks.
void encode_fp8(const In& x, std::byte* codes, std::byte* scales, const Context& where) {
  const std::int64_t blocks = workload::code_shape(CompressionWay::fp8).blocks(x.elems);
  std::vector<float> largest(static_cast<std::size_t>(blocks));
  kernels::Fp8Encode args{.rows = 1, .columns = x.elems, .per = kernels::ScalePer::tile, .x = x};
  args.largest = {largest.data(), DType::f32, blocks};
  args.scales = {scales, DType::f32, blocks};
  args.codes = {codes, args.to, x.elems};
  kernels::run(args, where);
}

void decode_fp8(const std::byte* codes, const std::byte* scales, const Out& y, const Context& where) {
  kernels::Fp8Decode args{.rows = 1, .columns = y.elems, .per = kernels::ScalePer::tile, .y = y};
  args.codes = {codes, args.from, y.elems};
  args.scales = {scales, DType::f32, args.blocks()};
  kernels::run(args, where);
}

// The error is half a step of the codes; for signs, the entire element. E4M3's relative error is at most 1/16, and its
// scales, powers of two, put the largest element into the upper half of its range.
constexpr auto kInt8 =
    format<kernels::Quantize, kernels::Dequantize, CompressionWay::int8, DType::i8>("int8", 0.5 / 127);
constexpr auto kInt4 =
    format<kernels::QuantizeInt4, kernels::DequantizeInt4, CompressionWay::int4, DType::u8>("int4", 0.5 / 7);
constexpr CodeFormat kFp8{"fp8", 1.0 / 16, encode_fp8, decode_fp8};
constexpr auto kSign = format<kernels::EncodeSigns, kernels::DecodeSigns, CompressionWay::sign, DType::u8>("sign", 1);

}  // namespace

const CodeFormat& format_of(CompressionWay way) {
  switch (way) {
    case CompressionWay::int8:
      return kInt8;
    case CompressionWay::int4:
      return kInt4;
    case CompressionWay::fp8:
      return kFp8;
    default:
      LOCKSTEP_CHECK(way == CompressionWay::sign, "a compression that sends codes");
      return kSign;
  }
}

}  // namespace lockstep::parallel
