#include "collectives/plan/symbols.h"

#include <fmt/format.h>

#include <algorithm>

namespace lockstep::plan {

Symbols::Symbols(int num_cells, int num_ranks, bool reduces)
    : num_ranks_(num_ranks),
      reduces_(reduces),
      num_words_(reduces ? (at(num_ranks) + 63) / 64 : 0),
      chunk_(at(num_cells), -1),
      origin_(reduces ? 0 : at(num_cells), -1),
      num_contributors_(reduces ? at(num_cells) : 0, 0),
      words_(at(num_cells) * num_words_, 0) {}

void Symbols::put_input(int cell, int rank, int chunk) {
  chunk_[at(cell)] = chunk;
  if (reduces_) {
    words_of(cell)[at(rank) / 64] = std::uint64_t{1} << (at(rank) % 64);
    num_contributors_[at(cell)] = 1;
  } else {
    origin_[at(cell)] = rank;
  }
}

void Symbols::copy(int to, int from) {
  chunk_[at(to)] = chunk_[at(from)];
  if (reduces_) {
    if (to != from) std::copy_n(words_of(from), num_words_, words_of(to));
    num_contributors_[at(to)] = num_contributors_[at(from)];
  } else {
    origin_[at(to)] = origin_[at(from)];
  }
}

bool Symbols::add(int to, int from) {
  if (!reduces_ || chunk_[at(to)] != chunk_[at(from)]) return false;
  std::uint64_t* sum = words_of(to);
  const std::uint64_t* term = words_of(from);
  for (std::size_t w = 0; w < num_words_; ++w) {
    if ((sum[w] & term[w]) != 0) return false;
  }
  for (std::size_t w = 0; w < num_words_; ++w) sum[w] |= term[w];
  num_contributors_[at(to)] += num_contributors_[at(from)];
  return true;
}

Moved Symbols::content(int cell) const {
  if (!reduces_) return {origin_[at(cell)], chunk_[at(cell)], true};
  return {-1, chunk_[at(cell)], num_contributors_[at(cell)] == num_ranks_};
}

std::string Symbols::describe(int cell) const {
  if (empty(cell)) return "nothing";
  if (!reduces_ || num_contributors_[at(cell)] == num_ranks_) return plan::describe(content(cell));
  std::string ranks;
  for (int r = 0; r < num_ranks_; ++r) {
    const auto has = [&](int rank) { return (words_of(cell)[at(rank) / 64] >> (at(rank) % 64) & 1) != 0; };
    if (!has(r)) continue;
    int last = r;
    while (last + 1 < num_ranks_ && has(last + 1)) ++last;
    ranks += ranks.empty() ? "" : ",";
    ranks += last == r ? fmt::format("{}", r) : fmt::format("{}-{}", r, last);
    r = last;
  }
  return fmt::format("chunk {} summed over ranks {}", chunk_[at(cell)], ranks);
}

std::string describe(const Moved& moved) {
  if (moved.origin < 0) return fmt::format("chunk {} summed over all ranks", moved.chunk);
  return fmt::format("chunk {} of rank {}'s input", moved.chunk, moved.origin);
}

}  // namespace lockstep::plan
