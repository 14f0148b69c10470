// Finds the earlier operations that an operation has to wait for, because they access the same memory and one of them
// writes it.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

namespace lockstep::executors {

// Operations are added in an order in which running them in sequence is right. Addresses are in any unit, of one rank.
class Hazards {
 public:
  // Operation `op` reads (writes) [begin, end): appends the operations that must be done before. May append one twice.
  void read(int op, std::int64_t begin, std::int64_t end, std::vector<int>& before);
  void write(int op, std::int64_t begin, std::int64_t end, std::vector<int>& before);

 private:
  struct Cell {
    int writer = -1;
    std::vector<int> readers;  // since it was written
  };
  using Cells = std::map<std::int64_t, Cell>;
  Cells::iterator split(std::int64_t at);

  Cells cells_{{INT64_MIN, {}}};  // by begin; each extends to the next
};

}  // namespace lockstep::executors
