// Predicted times of collectives beside published ones (collective_cases.json), and the tables that show both.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/machine/machine.h"
#include "simulator/network/nccl_fit.h"

namespace lockstep::simulator {

// One published sweep: a collective of as many GPUs in each of its nodes.
struct CollectiveSweep {
  std::string table;  // of the page
  std::string source;
  std::string machine;  // as load_machine() takes it
  std::vector<CollectivePoint> points;
  std::vector<NcclNumber> fitted;    // numbers of the machine that were fitted to points of this sweep
  std::vector<double> fitted_bytes;  // to those; not in the score
};
// Throws a usage Error that names `where` and the field.
std::vector<CollectiveSweep> parse_sweeps(std::string_view json, const std::string& where);

struct ValidatedCollective {
  std::string table;
  std::string machine;
  CollectivePoint of;
  std::string way;  // algorithm and protocol, as NCCL's tuner chooses
  double us = 0;
  bool fitted = false;
  double error() const { return us / of.us - 1; }
};
std::vector<ValidatedCollective> validate(std::span<const CollectiveSweep> sweeps);

// The sweep's machine with its fitted numbers as they fit best.
Machine refitted(const CollectiveSweep& sweep);

struct Score;
Score score_of(std::span<const ValidatedCollective> all);

// One of the sweeps' tables, "collective_score", or "ring_tree" (8 H100). Nothing if there is none of that name.
std::string collective_table(std::string_view name, std::span<const ValidatedCollective> all);

}  // namespace lockstep::simulator
