#include "collectives/executors/message_hazards.h"

#include <iterator>

namespace lockstep::executors {

// Splits at `at`; returns the cell that begins there.
Hazards::Cells::iterator Hazards::split(std::int64_t at) {
  const auto it = std::prev(cells_.upper_bound(at));
  return it->first == at ? it : cells_.emplace_hint(std::next(it), at, it->second);
}

void Hazards::read(int op, std::int64_t begin, std::int64_t end, std::vector<int>& before) {
  const auto first = split(begin);
  const auto last = split(end);
  for (auto it = first; it != last; ++it) {
    Cell& cell = it->second;
    if (cell.writer >= 0 && cell.writer != op) before.push_back(cell.writer);
    cell.readers.push_back(op);
  }
}

void Hazards::write(int op, std::int64_t begin, std::int64_t end, std::vector<int>& before) {
  const auto first = split(begin);
  const auto last = split(end);
  if (first == last) return;
  for (auto it = first; it != last; ++it) {
    const Cell& cell = it->second;
    if (cell.writer >= 0 && cell.writer != op) before.push_back(cell.writer);
    for (int reader : cell.readers) {
      if (reader != op) before.push_back(reader);
    }
  }
  first->second = {op, {}};
  cells_.erase(std::next(first), last);
}

}  // namespace lockstep::executors
