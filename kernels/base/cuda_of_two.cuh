// Elementwise kernels of two inputs and one output of the same dtype.
#pragma once

#include "kernels/base/cuda_loops.cuh"
#include "kernels/base/view.h"

namespace lockstep::kernels {

// An operation for run_elementwise(): y[i] = kFunction(a[i], b[i]).
template <class T, float (*kFunction)(float, float)>
struct OfTwo {
  const T* a;
  const T* b;
  T* y;

  template <int kItems>
  struct Inputs {
    Pack<T, kItems> a;
    Pack<T, kItems> b;
  };
  template <int kItems>
  __device__ Inputs<kItems> load(std::int64_t first) const {
    return {Pack<T, kItems>::load(a + first), Pack<T, kItems>::load(b + first)};
  }
  template <int kItems>
  __device__ void store(std::int64_t first, const Inputs<kItems>& in) const {
    Pack<T, kItems> out;
#pragma unroll
    for (int i = 0; i < kItems; ++i) out.set(i, kFunction(in.a[i], in.b[i]));
    out.store(y + first);
  }
};

template <class T, float (*kFunction)(float, float)>
void run_of_two(CudaContext& cuda, const char* name, const In& a, const In& b, const Out& y, std::int64_t count) {
  run_elementwise<sizeof(T)>(cuda, name, OfTwo<T, kFunction>{a.as<T>(), b.as<T>(), y.as<T>()}, count,
                             items_an_access(sizeof(T), 0, {a.data, b.data, y.data}));
}

}  // namespace lockstep::kernels
