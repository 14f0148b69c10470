// Counts of a launch, exactly repeatable: instructions of lanes by kind of work, and how its accesses meet memory.
#pragma once

#include <array>
#include <cstdint>

namespace lockstep::ptx {

struct Counts {
  std::array<std::uint64_t, 9> instructions{};  // executed by lanes, by Work
  std::uint64_t warp_instructions = 0;
  std::uint64_t global_requests = 0;  // made by warps
  std::uint64_t global_sectors = 0;   // 32 bytes each, distinct within a request
  std::uint64_t global_bytes_read = 0;
  std::uint64_t global_bytes_written = 0;
  std::uint64_t shared_requests = 0;
  std::uint64_t shared_wavefronts = 0;        // turns of the banks that these took
  std::uint64_t shared_wavefronts_least = 0;  // turns that they would have taken without conflicts of banks
  std::uint64_t products = 0;                 // multiply-adds of tensor cores

  Counts& operator+=(const Counts& other) {
    for (std::size_t i = 0; i < instructions.size(); ++i) instructions[i] += other.instructions[i];
    warp_instructions += other.warp_instructions;
    global_requests += other.global_requests;
    global_sectors += other.global_sectors;
    global_bytes_read += other.global_bytes_read;
    global_bytes_written += other.global_bytes_written;
    shared_requests += other.shared_requests;
    shared_wavefronts += other.shared_wavefronts;
    shared_wavefronts_least += other.shared_wavefronts_least;
    products += other.products;
    return *this;
  }
  friend bool operator==(const Counts&, const Counts&) = default;
};

}  // namespace lockstep::ptx
