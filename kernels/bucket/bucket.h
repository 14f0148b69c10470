// Packs gradients of many parameters into one flat bucket, the message of a bucketed reduction, and unpacks them.
// Deterministic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

// bucket = the pieces in order, times scale, in the bucket's dtype. With scale 1 and equal dtypes, bits are
// copied; otherwise x * scale is computed in f32 and rounded to nearest, ties to even (NaN stays NaN, infinity
// infinity).
struct PackBucket {
  float scale = 1;
  std::vector<std::int64_t> counts;  // [piece] elements
  std::vector<In> pieces = {};       // [piece][counts[piece]], all of one dtype
  Out bucket = {};                   // [sum of counts]

  std::string_view name() const { return "pack_bucket"; }
  void check_shape() const;
  std::int64_t total() const { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit);
};

struct UnpackBucket {
  float scale = 1;
  std::vector<std::int64_t> counts;
  In bucket = {};
  std::vector<Out> pieces = {};

  std::string_view name() const { return "unpack_bucket"; }
  void check_shape() const;
  std::int64_t total() const { return std::accumulate(counts.begin(), counts.end(), std::int64_t{0}); }
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit);
};

// Visits operands "piece0", "piece1", ..., as many as there are counts. Arguments that may be changed get the views
// that they lack; in others an empty view is visited, which is then refused by its name.
template <class Bucket, class Visit>
void visit_pieces(Bucket& args, Visit&& visit) {
  using View = typename std::remove_cvref_t<decltype(args.pieces)>::value_type;
  if constexpr (!std::is_const_v<Bucket>) args.pieces.resize(args.counts.size());
  for (std::size_t i = 0; i < args.counts.size(); ++i) {
    const DTypes allowed =
        i == 0 ? kActivations : DTypes(args.pieces.empty() ? core::DType::f32 : args.pieces[0].dtype);
    const std::string name = "piece" + std::to_string(i);
    if (i < args.pieces.size()) {
      visit(name, args.pieces[i], args.counts[i], allowed);
    } else if constexpr (std::is_const_v<Bucket>) {
      const View missing{};
      visit(name, missing, args.counts[i], allowed);
    }
  }
}

template <class Self, class Visit>
void PackBucket::visit_operands(Self& self, Visit&& visit) {
  visit_pieces(self, visit);
  visit("bucket", self.bucket, self.total(), kActivations);
}

template <class Self, class Visit>
void UnpackBucket::visit_operands(Self& self, Visit&& visit) {
  visit("bucket", self.bucket, self.total(), kActivations);
  visit_pieces(self, visit);
}

// One FLOP per element.
Cost cost_of(const PackBucket& args);
Cost cost_of(const UnpackBucket& args);

void run_cpu(const PackBucket& args, ThreadPool& pool);
void run_cpu(const UnpackBucket& args, ThreadPool& pool);
void run_cuda(const PackBucket& args, CudaContext& cuda);
void run_cuda(const UnpackBucket& args, CudaContext& cuda);

// Reference: plain loops, for tests.

template <class S>
void reference(const PackBucket& args, ReferenceData<S>& data) {
  const auto bucket = data["bucket"];
  std::size_t next = 0;
  for (std::size_t k = 0; k < args.counts.size(); ++k) {
    for (const S& x : data["piece" + std::to_string(k)]) bucket[next++] = x * S(args.scale);
  }
}

template <class S>
void reference(const UnpackBucket& args, ReferenceData<S>& data) {
  const auto bucket = data["bucket"];
  std::size_t next = 0;
  for (std::size_t k = 0; k < args.counts.size(); ++k) {
    for (S& y : data["piece" + std::to_string(k)]) y = bucket[next++] * S(args.scale);
  }
}

}  // namespace lockstep::kernels
