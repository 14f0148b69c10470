// Gradients of many parameters into one flat bucket, and back: what a bucketed reduction sends. Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/base/cost.h"
#include "kernels/base/operands.h"
#include "kernels/base/thread_pool.h"
#include "kernels/base/view.h"

namespace lockstep::kernels {

class CudaContext;

// bucket = the pieces one after the other, times scale, in the bucket's dtype.
struct PackBucket {
  float scale = 1;
  std::vector<std::int64_t> counts;  // [piece] elements
  std::vector<In> pieces = {};       // [piece][counts[piece]], all of one dtype
  Out bucket = {};                   // [sum of counts]

  std::string_view name() const { return "pack_bucket"; }
  void check_shape() const;
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
  template <class Self, class Visit>
  static void visit_operands(Self& self, Visit&& visit);
};

// Operands "piece0", "piece1", ...
template <class Self, class Visit>
void PackBucket::visit_operands(Self& self, Visit&& visit) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < self.counts.size(); ++i) {
    visit("piece" + std::to_string(i), self.pieces[i], self.counts[i], kActivations);
    total += self.counts[i];
  }
  visit("bucket", self.bucket, total, kActivations);
}

template <class Self, class Visit>
void UnpackBucket::visit_operands(Self& self, Visit&& visit) {
  std::int64_t total = 0;
  for (std::int64_t count : self.counts) total += count;
  visit("bucket", self.bucket, total, kActivations);
  for (std::size_t i = 0; i < self.counts.size(); ++i) {
    visit("piece" + std::to_string(i), self.pieces[i], self.counts[i], kActivations);
  }
}

Cost cost_of(const PackBucket& args);
Cost cost_of(const UnpackBucket& args);

void run_cpu(const PackBucket& args, ThreadPool& pool);
void run_cpu(const UnpackBucket& args, ThreadPool& pool);
void run_cuda(const PackBucket& args, CudaContext& cuda);
void run_cuda(const UnpackBucket& args, CudaContext& cuda);

}  // namespace lockstep::kernels
