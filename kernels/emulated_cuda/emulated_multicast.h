// Multicast memory on the CPU: addresses that no plain access may use, each of which stands for the same place in the
// memory of every rank.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::kernels::emulated {

// The address at which all `replicas`, of so many bytes, begin.
std::byte* make_multicast(std::vector<std::byte*> replicas, std::size_t size_bytes);
void end_multicast(std::byte* multicast);

// Throws core::Error for what is no multicast address.
std::vector<std::byte*> replicas_at(const void* address);

}  // namespace lockstep::kernels::emulated
