// The time of a matrix product on the multiprocessors of a GPU, by its shape (NVIDIA, "Matrix Multiplication Background
// User's Guide", DU-09799-001, 2023, sections 2.1, 2.3 and 3).
//
// The result is cut into tiles, of which each multiprocessor works on one at a time: a tile at the edge costs as much
// as a whole one, and a last wave with few tiles as much as a full one. Smaller tiles fill more multiprocessors, but
// load more values for each multiply-add. Where tiles are few and k is long, several multiprocessors share a tile
// (split-k). cuBLAS chooses among tiles and splits; here the fastest by these formulas is taken:
//
//   waves x (kTileUs + (tm tn + kLoad (tm + tn)) k / split / multiply-adds a microsecond) + kSplitUs if split > 1
//
// docs/validation.md (Products) holds them to published times on A100 and H100.
#pragma once

#include "simulator/machine/machine.h"
#include "workload/kernel_call.h"

namespace lockstep::simulator {

// Microseconds, without the kernel's launch; `tflops`: what full waves of the largest tile reach. The device's number
// of multiprocessors is known. Loads from memory may take longer.
double product_us(const DeviceSpec& device, const workload::Product& product, double tflops);

}  // namespace lockstep::simulator
