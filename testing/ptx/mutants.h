// Deliberate mistakes in compiled kernels, made by machine: synchronization that is left out or weakened, and bounds
// that are off by one. Each must show when its entry runs.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "testing/ptx/module.h"

namespace lockstep::ptx {

struct Mutation {
  std::size_t index = 0;  // index of the instruction in the entry
  std::string what;       // "left out", "wait_group 1 for 0", ".relaxed for .release"
  std::string kind;       // "bar.sync", for tables
  Instruction changed;
};

// All mistakes that can be made in the entry, in the order of its instructions.
std::vector<Mutation> mutations_of(const Entry& entry);

std::shared_ptr<const Entry> mutated(const Entry& entry, const Mutation& mutation);

}  // namespace lockstep::ptx
