// Compares our exp of f32 vectors with libmvec's (glibc), alternating over one array in the L1 cache; AVX-512,
// one thread. The vector code is a header of ours, compiled for this machine. Prints
// exp,name,calls,median_us,mean_us,min_us, where a call processes 4096 elements.
#include <immintrin.h>

#include "compare/peers/peers.h"
#include "kernels/base/vector_math-inl.h"

extern "C" __m512 _ZGVeN16v_expf(__m512);  // libmvec's name by the vector ABI

namespace {

namespace hn = hwy::HWY_NAMESPACE;
static_assert(lockstep::kernels::HWY_NAMESPACE::kIsAvx512);  // the comparison is valid only for this machine's code
using lockstep::kernels::HWY_NAMESPACE::exp_f32;
using lockstep::kernels::HWY_NAMESPACE::F32;

constexpr std::size_t kElems = 4096;
constexpr int kPassesPerCall = 16;

// Separate functions, as in a kernel: inlined into main(), which runs once, constants would not stay in registers.
[[gnu::noinline]] void ours(const float* x, float* y) {
  const std::size_t lanes = hn::Lanes(F32());
  for (std::size_t i = 0; i < kElems; i += lanes) hn::Store(exp_f32(hn::Load(F32(), x + i)), F32(), y + i);
}

[[gnu::noinline]] void libmvec(const float* x, float* y) {
  for (std::size_t i = 0; i < kElems; i += 16) _mm512_store_ps(y + i, _ZGVeN16v_expf(_mm512_load_ps(x + i)));
}

double us_of(void (*function)(const float*, float*), const float* x, float* y) {
  const auto before = std::chrono::steady_clock::now();
  for (int pass = 0; pass < kPassesPerCall; ++pass) {
    function(x, y);
    asm volatile("" : : "r"(y) : "memory");  // forces every pass to be done
  }
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - before).count() / kPassesPerCall;
}

}  // namespace

int main() {
  alignas(64) static float x[kElems];
  alignas(64) static float y[kElems];
  for (std::size_t i = 0; i < kElems; ++i) x[i] = -10.0F + 20.0F * static_cast<float>(i) / kElems;
  std::vector<double> of_ours;
  std::vector<double> of_libmvec;
  for (int call = 0; call < 2000; ++call) {
    of_ours.push_back(us_of(ours, x, y));
    of_libmvec.push_back(us_of(libmvec, x, y));
  }
  lockstep::peers::print_row("exp", "lockstep", of_ours);
  lockstep::peers::print_row("exp", "libmvec", of_libmvec);
  return 0;
}
