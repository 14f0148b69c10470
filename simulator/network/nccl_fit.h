// A machine's numbers of NCCL (Machine::nccl) from times of its collectives.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "simulator/machine/record_lines.h"
#include "simulator/network/collective_prediction.h"

namespace lockstep::simulator {

struct CollectivePoint {
  schedules::Comm comm = schedules::Comm::all_reduce;
  std::int64_t ranks = 2;
  double bytes = 0;
  double us = 0;
  std::int64_t nodes = 1;  // as many ranks in each, all below one switch of the network
};
CollectivePrediction predicted(const Machine& machine, const CollectivePoint& point);
double predicted_us(const Machine& machine, const CollectivePoint& point);

enum class NcclNumber : std::uint8_t { start_us, simple_step_us, collective_efficiency, ll128, last_copy, nvls };
inline constexpr std::array<std::string_view, 6> kNcclNumbers{"start_us", "simple_step_us", "collective_efficiency",
                                                              "ll128",    "last_copy",      "nvls"};

// The machine with these numbers as they make the sum of squared relative errors least; they start from the machine's
// own, which are above 0; shares stay at most 1. What NCCL chooses does not depend on them.
Machine fit_nccl(Machine machine, std::span<const CollectivePoint> points, std::span<const NcclNumber> numbers);
double value_of(const Machine& machine, NcclNumber number);

// What sweeps of NCCL's own collectives within one node tell of a machine: `base` with those of its numbers fitted that
// the rows depend on, and a source that says so. Throws a usage Error, in which `where` names the rows, if the base has
// no NCCL or there are fewer than four sizes within one of its nodes.
Machine calibrate_nccl(const Machine& base, std::span<const RowLine> rows, const std::string& where);

}  // namespace lockstep::simulator
