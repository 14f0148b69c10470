#include "kernels/bucket/bucket.h"

#include <cstring>

#include "kernels/base/element_types.h"
#include "kernels/base/number_checks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bucket/bucket.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_io-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

template <class From, class To>
void scale_range(const From* x, To* y, std::size_t count, float scale) {
  const std::size_t lanes = lanes_f32();
  const VF32 factor = hn::Set(F32(), scale);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) store(hn::Mul(load(x + i), factor), y + i);
  if (i < count) store_tail(hn::Mul(load_tail(x + i, count - i), factor), y + i, count - i);
}

// y[y_begin + i] = x[x_begin + i] * scale.
void move(const In& x, std::int64_t x_begin, const Out& y, std::int64_t y_begin, std::int64_t count, float scale) {
  const auto elems = static_cast<std::size_t>(count);
  with_activation_type(x.dtype, [&](auto from) {
    with_activation_type(y.dtype, [&](auto to) {
      const auto* source = x.as<decltype(from)>() + x_begin;
      auto* destination = y.as<decltype(to)>() + y_begin;
      if (x.dtype == y.dtype && scale == 1) {
        std::memcpy(destination, source, elems * sizeof from);
      } else {
        scale_range(source, destination, elems, scale);
      }
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(move);
constexpr std::int64_t kGrain = 1024;  // elements

// Calls work(piece, its first element, how many, where in the bucket) for what [begin, end) of the bucket holds.
template <class Work>
void for_pieces_of(const std::vector<std::int64_t>& counts, std::int64_t begin, std::int64_t end, Work&& work) {
  std::int64_t piece_begin = 0;
  for (std::size_t k = 0; k < counts.size() && piece_begin < end; ++k) {
    const std::int64_t piece_end = piece_begin + counts[k];
    const std::int64_t from = begin > piece_begin ? begin : piece_begin;
    const std::int64_t to = end < piece_end ? end : piece_end;
    if (from < to) work(k, from - piece_begin, to - from, from);
    piece_begin = piece_end;
  }
}

template <class Args>
void check_pieces(const Args& args) {
  check_at_least(args.name(), "pieces", static_cast<std::int64_t>(args.counts.size()), 1);
  for (std::size_t k = 0; k < args.counts.size(); ++k) {
    check_at_least(args.name(), "count of piece" + std::to_string(k), args.counts[k], 1);
  }
  check_finite(args.name(), "scale", args.scale);
  if (args.pieces.size() > args.counts.size()) {
    throw core::usage_error(std::string(args.name()) + ": " + std::to_string(args.pieces.size()) +
                            " pieces are given; its shape asks for " + std::to_string(args.counts.size()));
  }
}
}  // namespace

void PackBucket::check_shape() const {
  check_pieces(*this);
}

void UnpackBucket::check_shape() const {
  check_pieces(*this);
}

Cost cost_of(const PackBucket& args) {
  return {static_cast<double>(args.total()), operand_bytes(args), ""};
}

Cost cost_of(const UnpackBucket& args) {
  return {static_cast<double>(args.total()), operand_bytes(args), ""};
}

void run_cpu(const PackBucket& args, ThreadPool& pool) {
  pool.for_ranges(args.total(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for_pieces_of(args.counts, begin, end, [&](std::size_t k, std::int64_t first, std::int64_t count, std::int64_t at) {
      HWY_DYNAMIC_DISPATCH(move)(args.pieces[k], first, args.bucket, at, count, args.scale);
    });
  });
}

void run_cpu(const UnpackBucket& args, ThreadPool& pool) {
  pool.for_ranges(args.total(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for_pieces_of(args.counts, begin, end, [&](std::size_t k, std::int64_t first, std::int64_t count, std::int64_t at) {
      HWY_DYNAMIC_DISPATCH(move)(args.bucket, at, args.pieces[k], first, count, args.scale);
    });
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
