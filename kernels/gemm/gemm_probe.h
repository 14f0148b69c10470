// Which implementation computes the products of a whole run: found once, by a short probe of all that are here.
//
// Which one is fastest depends on the moment, too: AMX belongs to a physical core, and gives a third of its speed while
// somebody else on that core uses it. But a run must keep to one implementation, as last bits differ between them. So
// the probe runs once, before the ranks start, and its answer is a name, which all ranks get (choose_gemms_by_rule), a
// record can hold and a flag can repeat.
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

// An implementation's time for one round of the probe's products: the least of its rounds, as other programs on its
// cores only add; somebody who uses AMX on the same core does so for seconds, longer than all rounds. Infinite if it
// was so slow in the first that it was not measured further.
struct GemmTime {
  std::string name;
  double seconds = 0;
};

// Times all by turns, so that drift hits them alike. `run_s(i)` runs one round of names[i] and returns its seconds.
// The first round warms up, and drops what takes more than eight times as long as the fastest. Ends after five rounds
// if they took 40 ms together, at the latest after 15.
std::vector<GemmTime> time_in_turn(std::span<const std::string> names, const std::function<double(std::size_t)>& run_s);

// The fastest; but of those within 5 % of it the first, so that repeated probes on one machine agree.
std::string fastest_gemm(std::span<const GemmTime> times);

// All that there are, in the fixed order: ours on AMX, ours on any CPU, oneDNN.
inline constexpr std::array kGemmNames{"amx", "packed", "onednn"};
// Those of them that are built in and can compute products of this dtype here.
std::vector<std::string> gemm_implementations(core::DType dtype);

// Times these on so many threads: a layer of 256 inputs and 768 outputs, its forward and both gradients, on 128 rows a
// thread; some 40 ms.
std::vector<GemmTime> probe_gemms(std::span<const std::string> names, core::DType dtype, int threads);

}  // namespace lockstep::kernels
