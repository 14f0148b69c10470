// What a case needs, before anything is allocated.
#pragma once

#include <cstdint>

#include "bench/parallel_layers/flags.h"

namespace lockstep::layer_bench {

// About: the tensors of all ranks of a case in each number of tiles, and of one rank that has all of the layer; with
// what is copied to the host to be compared.
std::int64_t needed_bytes(const Case& one, const Shape& shape);

// Throws a usage Error that says what is needed, what is there, and what would help.
void check_memory(const Case& one, const Shape& shape, std::int64_t available_bytes);

}  // namespace lockstep::layer_bench
