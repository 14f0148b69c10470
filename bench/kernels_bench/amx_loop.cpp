// Peak rate of AMX tiles. Highway 1.0.3 has no AMX: intrinsics with a target attribute, behind a run-time check.
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench/kernels_bench/roofline.h"

namespace lockstep::kernel_bench {
namespace {

// Intel 64 and IA-32 Architectures Software Developer's Manual, volume 1, section 18. A constant in memory: g++ 12
// assumes that loading it reads only 8 bytes, and drops stores to the others.
struct alignas(64) TileConfig {
  constexpr TileConfig() {
    for (int tile = 0; tile < 8; ++tile) {
      row_bytes[tile] = 64;
      rows[tile] = 16;
    }
  }
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

constexpr TileConfig kConfig;
constexpr int kSums = 6;  // tiles 0 to 5; 6 and 7 are the factors
constexpr double kFlopsOfATile = 2.0 * 16 * 16 * 32;

bool cpu_has_amx_bf16() {
  unsigned a = 0;
  unsigned b = 0;
  unsigned c = 0;
  unsigned d = 0;
  constexpr unsigned kBf16AndTile = 1U << 22 | 1U << 24;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBf16AndTile) == kBf16AndTile;
}

bool system_lends_tiles() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM of asm/prctl.h
  constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

__attribute__((target("amx-tile,amx-bf16"))) void multiply(std::int64_t rounds) {
  _tile_loadconfig(&kConfig);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  _tile_zero(6);
  _tile_zero(7);
  for (std::int64_t round = 0; round < rounds; ++round) {
    _tile_dpbf16ps(0, 6, 7);
    _tile_dpbf16ps(1, 6, 7);
    _tile_dpbf16ps(2, 6, 7);
    _tile_dpbf16ps(3, 6, 7);
    _tile_dpbf16ps(4, 6, 7);
    _tile_dpbf16ps(5, 6, 7);
  }
  _tile_release();
}

}  // namespace

bool can_use_amx() {
  return cpu_has_amx_bf16() && system_lends_tiles();
}

double amx_bf16_loop(std::int64_t rounds) {
  multiply(rounds);
  return kSums * kFlopsOfATile * static_cast<double>(rounds);
}

}  // namespace lockstep::kernel_bench
