// Chooses the implementation of all products of a run by one short probe of those available.
//
// Which one is fastest also depends on the moment: AMX belongs to a physical core and runs at a third of its speed
// while another program on that core uses it. But a run must keep to one implementation, because last bits differ
// between them. So the probe runs once, before the ranks start, and its result is a name that all ranks get
// (choose_gemms_by_rule), that a record can hold and a flag can repeat.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"

namespace lockstep::kernels {

// An implementation's time for one round of the probe's products: the minimum of its rounds, because other programs on
// its cores only add time; a program that uses AMX on the same core does so for seconds, longer than all rounds.
// Infinite if the first round was too slow to continue.
struct GemmTime {
  std::string name;
  double seconds = 0;
};

// Times all implementations in alternating rounds, so that drift affects them equally. `run_s(i)` runs one round of
// names[i] and returns its seconds. The first round is a warm-up and drops those that take more than eight times as
// long as the fastest. Ends after five rounds if they took 40 ms together, and after 15 at the latest.
std::vector<GemmTime> time_in_turn(std::span<const std::string> names, const std::function<double(std::size_t)>& run_s);

// Returns the fastest; among those within 5 % of it, the first, so that repeated probes on one machine agree.
std::string fastest_gemm(std::span<const GemmTime> times);

// All implementations in the fixed order: ours on AMX, ours on any CPU, oneDNN.
inline constexpr std::array kGemmNames{"amx", "packed", "onednn"};
// Those that are built in and can compute products of this dtype here.
std::vector<std::string> gemm_implementations(core::DType dtype);

// Times these with this many threads: a layer of 256 inputs and 768 outputs, its forward and both gradients, with 128
// rows per thread; takes about 40 ms.
std::vector<GemmTime> probe_gemms(std::span<const std::string> names, core::DType dtype, int threads);

}  // namespace lockstep::kernels
