// Fits a machine's NCCL parameters (Machine::nccl) to times of its collectives.
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
  std::int64_t nodes = 1;  // with equally many ranks each, all below one switch of the network
};
CollectivePrediction predicted(const Machine& machine, const CollectivePoint& point);
double predicted_us(const Machine& machine, const CollectivePoint& point);

enum class NcclNumber : std::uint8_t { start_us, simple_step_us, collective_efficiency, ll128, last_copy, nvls };
inline constexpr std::array<std::string_view, 6> kNcclNumbers{"start_us", "simple_step_us", "collective_efficiency",
                                                              "ll128",    "last_copy",      "nvls"};

// The machine with these numbers fitted by least squares of relative errors. The fit starts from the machine's own
// numbers, which are above 0; shares stay at most 1. The tuner's choices do not depend on these numbers.
Machine fit_nccl(Machine machine, std::span<const CollectivePoint> points, std::span<const NcclNumber> numbers);
double value_of(const Machine& machine, NcclNumber number);

// Calibrates a machine from sweeps of NCCL's own collectives within one node: `base` with those of its numbers fitted
// that affect the rows, and with a source that says so. Throws a usage Error, in which `where` names the rows, if
// `base` has no NCCL or the rows have fewer than four sizes within one node.
Machine calibrate_nccl(const Machine& base, std::span<const RowLine> rows, const std::string& where);

}  // namespace lockstep::simulator
