#include "kernels/base/cuda_loops.cuh"
#include "kernels/residual/residual.h"

namespace lockstep::kernels {
namespace {

// philox_block() of residual.h on the device.
struct Philox {
  std::uint64_t seed;
  std::uint64_t step;

  __device__ __forceinline__ uint4 block(std::uint64_t number) const {
    uint4 c = make_uint4(low(number), high(number), low(step), high(step));
    std::uint32_t key0 = low(seed);
    std::uint32_t key1 = high(seed);
#pragma unroll
    for (int round = 0; round < kPhiloxRounds; ++round) {
      const std::uint64_t product0 = std::uint64_t{kPhiloxMultiplier0} * c.x;
      const std::uint64_t product1 = std::uint64_t{kPhiloxMultiplier1} * c.z;
      c = make_uint4(high(product1) ^ c.y ^ key0, low(product1), high(product0) ^ c.w ^ key1, low(product0));
      key0 += kPhiloxKeyStep0;
      key1 += kPhiloxKeyStep1;
    }
    return c;
  }
  __device__ __forceinline__ static std::uint32_t low(std::uint64_t x) {
    return static_cast<std::uint32_t>(x);
  }
  __device__ __forceinline__ static std::uint32_t high(std::uint64_t x) {
    return static_cast<std::uint32_t>(x >> 32);
  }
};

__device__ __forceinline__ std::uint32_t word_of(const uint4& block, unsigned index) {
  const std::uint32_t low_pair = index == 0 ? block.x : block.y;
  const std::uint32_t high_pair = index == 2 ? block.z : block.w;
  return index < 2 ? low_pair : high_pair;
}

template <class T>
struct Drop {
  const T* x;
  T* y;
  Philox random;
  std::uint64_t first_element;
  std::uint32_t threshold;
  float factor;  // for kept elements

  template <int kItems>
  __device__ Pack<T, kItems> load(std::int64_t first) const {
    return Pack<T, kItems>::load(x + first);
  }
  // A pack that begins at a block uses the four words of each block; another pack may begin inside of a block.
  template <int kItems>
  __device__ void store(std::int64_t first, Pack<T, kItems> pack) const {
    const std::uint64_t element = first_element + static_cast<std::uint64_t>(first);
    const auto begin = static_cast<unsigned>(element % 4);
    uint4 block = random.block(element / 4);
    if (kItems % 4 == 0 && begin == 0) {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        if (i > 0 && i % 4 == 0) block = random.block(element / 4 + i / 4);
        drop(pack, i, word_of(block, i % 4));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kItems; ++i) {
        const unsigned index = (begin + i) % 4;
        if (i > 0 && index == 0) block = random.block((element + i) / 4);
        drop(pack, i, word_of(block, index));
      }
    }
    pack.store(y + first);
  }
  template <int kItems>
  __device__ __forceinline__ void drop(Pack<T, kItems>& pack, int i, std::uint32_t word) const {
    pack.set(i, word >= threshold ? pack[i] * factor : 0.0F);
  }
};

}  // namespace

void run_cuda(const Dropout& args, CudaContext& cuda) {
  with_cuda_activation_type(args.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const Drop<T> drop{args.x.as<T>(),
                       args.y.as<T>(),
                       {args.seed, args.step},
                       args.first_element,
                       dropout_threshold(args.rate),
                       static_cast<float>(1 / (1 - static_cast<double>(args.rate)))};
    run_elementwise<sizeof(T)>(cuda, "dropout", drop, args.count,
                               items_an_access(sizeof(T), 0, {args.x.data, args.y.data}));
  });
}

namespace {

__device__ __forceinline__ float sum_of(float a, float b) {
  return a + b;
}

}  // namespace

void run_cuda(const ResidualAdd& args, CudaContext& cuda) {
  with_cuda_activation_type(args.a.dtype, [&](auto zero) {
    run_of_two<decltype(zero), sum_of>(cuda, "residual_add", args.a, args.b, args.y, args.count);
  });
}

}  // namespace lockstep::kernels
