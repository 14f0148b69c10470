#include "kernels/bucket/bucket.h"

#include <cstring>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/bucket/bucket.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_convert-inl.h"

// Shared by all targets, each of which includes this file.
#ifndef LOCKSTEP_KERNELS_BUCKET_MOVE
#define LOCKSTEP_KERNELS_BUCKET_MOVE
namespace lockstep::kernels {
namespace {

// How elements are copied from one array to another on the CPU.
struct Move {
  float scale;
  bool stream;  // use non-temporal stores
};

}  // namespace
}  // namespace lockstep::kernels
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

// Sets y[y_begin + i] = x[x_begin + i] * scale.
void move(const Move& how, const In& x, std::int64_t x_begin, const Out& y, std::int64_t y_begin, std::int64_t count) {
  const auto all = static_cast<std::size_t>(count);
  with_activation_type(x.dtype, [&](auto from) {
    with_activation_type(y.dtype, [&](auto to) {
      const auto* source = x.as<decltype(from)>() + x_begin;
      auto* destination = y.as<decltype(to)>() + y_begin;
      if (x.dtype != y.dtype || how.scale != 1) {
        produce_elems(destination, all, how.stream, 1, [&](std::size_t i, std::size_t elems, auto* out) {
          convert_elems(source + i, out, elems, how.scale);
        });
      } else if (how.stream) {
        stream_copy(source, destination, all * sizeof from);
        hwy::FlushStream();
      } else {
        std::memcpy(destination, source, all * sizeof from);
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

// Calls work(piece, first element, count, position in the bucket) for the data in [begin, end) of the bucket.
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
                            " pieces are given; its shape requires " + std::to_string(args.counts.size()));
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
  return cost_of_operands(static_cast<double>(args.total()), args);
}

Cost cost_of(const UnpackBucket& args) {
  return cost_of_operands(static_cast<double>(args.total()), args);
}

void run_cpu(const PackBucket& args, ThreadPool& pool) {
  const Move how{args.scale, pool.kept<Caches>().outgrown_by(size_bytes(args.bucket.dtype, args.total()))};
  pool.for_ranges(args.total(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for_pieces_of(args.counts, begin, end, [&](std::size_t k, std::int64_t first, std::int64_t count, std::int64_t at) {
      HWY_DYNAMIC_DISPATCH(move)(how, args.pieces[k], first, args.bucket, at, count);
    });
  });
}

void run_cpu(const UnpackBucket& args, ThreadPool& pool) {
  const Move how{args.scale, pool.kept<Caches>().outgrown_by(size_bytes(args.pieces[0].dtype, args.total()))};
  pool.for_ranges(args.total(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    for_pieces_of(args.counts, begin, end, [&](std::size_t k, std::int64_t first, std::int64_t count, std::int64_t at) {
      HWY_DYNAMIC_DISPATCH(move)(how, args.bucket, at, args.pieces[k], first, count);
    });
  });
}

}  // namespace lockstep::kernels
#endif  // HWY_ONCE
