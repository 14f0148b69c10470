// Validation of predicted times of collectives against published ones (collective_cases.json), and its tables.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/machine/machine.h"
#include "simulator/network/nccl_fit.h"

namespace lockstep::simulator {

// One published sweep of collectives, with equally many GPUs in each node.
struct CollectiveSweep {
  std::string table;  // table of the page
  std::string source;
  std::string machine;  // argument of load_machine()
  std::vector<CollectivePoint> points;
  std::vector<NcclNumber> fitted;    // numbers of the machine that were fitted to points of this sweep
  std::vector<double> fitted_bytes;  // sizes of these points; not in the score
};
// Throws a usage Error that names `where` and the field.
std::vector<CollectiveSweep> parse_sweeps(std::string_view json, const std::string& where);

struct ValidatedCollective {
  std::string table;
  std::string machine;
  CollectivePoint of;
  std::string way;  // algorithm and protocol chosen by NCCL's tuner
  double us = 0;
  bool fitted = false;
  double error() const { return us / of.us - 1; }
};
std::vector<ValidatedCollective> validate(std::span<const CollectiveSweep> sweeps);

// The sweep's machine with its fitted numbers fitted anew.
Machine refitted(const CollectiveSweep& sweep);

struct Score;
Score score_of(std::span<const ValidatedCollective> all);

// One of the sweeps' tables, "collective_score", or "ring_tree" (8 H100). Empty if there is no table of that name.
std::string collective_table(std::string_view name, std::span<const ValidatedCollective> all);

}  // namespace lockstep::simulator
