#include "testing/plans/plans.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "collectives/plan/plan.h"
#include "core/index.h"

namespace lockstep::plan {
namespace {

using Elements = std::vector<std::uint64_t>;

// A chunk-sized place. Sums wrap around and inputs are random 64-bit numbers, so a wrong sum never looks right.
struct Cell {
  Elements data;
  std::int64_t fixed_size = -1;  // for input and output chunks; scratch takes any size
  bool written = false;
};

// Thrown by a step that cannot be right.
struct Wrong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Rank {
  std::vector<std::size_t> cells[3];  // [Buffer][chunk] index in Engine::cells_
  std::vector<std::size_t> next;      // [lane]
};

struct Parcel {
  std::vector<Elements> data;      // unless read in place
  std::vector<std::size_t> cells;  // if read in place
};

class Engine {
 public:
  Engine(const Plan& plan, const CheckOptions& options, std::uint64_t seed)
      : plan_(plan), options_(options), random_(seed), by_priority_(seed % 4 == 0), ranks_(plan.ranks.size()) {
    for (int rank = 0; rank < plan.num_ranks; ++rank) make_buffers(rank);
    for (int rank = 0; rank < plan.num_ranks; ++rank) {
      ranks_[at(rank)].next.resize(plan.ranks[at(rank)].lanes.size(), 0);
      for (int lane = 0; lane < static_cast<int>(ranks_[at(rank)].next.size()); ++lane) lanes_.push_back({rank, lane});
    }
    std::shuffle(lanes_.begin(), lanes_.end(), random_);
  }

  void run() {
    while (std::any_of(lanes_.begin(), lanes_.end(), [&](const LaneOf& lane) { return !ended(lane); })) {
      if (!by_priority_) std::shuffle(lanes_.begin(), lanes_.end(), random_);
      const auto lane =
          std::find_if(lanes_.begin(), lanes_.end(), [&](const LaneOf& l) { return !ended(l) && can_run(l); });
      if (lane == lanes_.end()) throw Wrong("deadlock");
      execute(*lane);
      ++ranks_[at(lane->rank)].next[at(lane->lane)];
    }
    compare();
  }

 private:
  struct LaneOf {
    int rank;
    int lane;
  };

  // Elements of the block that `from` has for `to`. Symmetric, so that all_to_all_v can be in place.
  std::int64_t block_elems(int from, int to) const {
    const int uneven = plan_.kind == collectives::Kind::all_to_all_v ? from * to % 5 + (from + to) % 3 : 0;
    return std::int64_t{2} * plan_.chunks_per_block + 1 + uneven;
  }
  std::int64_t chunk_elems(int from, int to, int chunk) const {
    return chunk_size(block_elems(from, to), plan_.chunks_per_block, chunk % plan_.chunks_per_block);
  }

  std::size_t new_cell(std::int64_t fixed_size) {
    cells_.push_back({{}, fixed_size, false});
    return cells_.size() - 1;
  }

  void make_buffers(int rank) {
    Rank& r = ranks_[at(rank)];
    const int k = plan_.chunks_per_block;
    for (int chunk = 0; chunk < input_chunks(plan_, rank); ++chunk) {
      r.cells[0].push_back(new_cell(chunk_elems(rank, chunk / k, chunk)));
      Cell& cell = cells_.back();
      for (std::int64_t i = 0; i < cell.fixed_size; ++i) cell.data.push_back(random_());
      cell.written = true;
      inputs_[{rank, chunk}] = cell.data;
    }
    const auto alias = collectives::in_place_alias(plan_.kind, plan_.num_ranks, plan_.root, rank);
    for (int chunk = 0; chunk < output_chunks(plan_, rank); ++chunk) {
      const int shared = chunk + (alias.input_block - alias.output_block) * k;
      const bool is_shared = options_.in_place && shared >= 0 && shared < input_chunks(plan_, rank);
      r.cells[1].push_back(is_shared ? r.cells[0][at(shared)] : new_cell(chunk_elems(chunk / k, rank, chunk)));
    }
    for (int chunk = 0; chunk < plan_.scratch_chunks; ++chunk) r.cells[2].push_back(new_cell(-1));
  }

  const Step& step_of(const LaneOf& lane) const {
    return plan_.ranks[at(lane.rank)].lanes[at(lane.lane)][ranks_[at(lane.rank)].next[at(lane.lane)]];
  }
  bool ended(const LaneOf& lane) const {
    return ranks_[at(lane.rank)].next[at(lane.lane)] == plan_.ranks[at(lane.rank)].lanes[at(lane.lane)].size();
  }

  std::deque<Parcel>& channel(int from, int to, int lane) { return channels_[{from, to, lane}]; }

  bool can_run(const LaneOf& lane) {
    const Step& step = step_of(lane);
    for (const After& after : step.after) {
      const auto& next = ranks_[at(lane.rank)].next;
      if (after.lane < 0 || at(after.lane) >= next.size() || after.step < 0) throw Wrong("after names no lane");
      if (next[at(after.lane)] <= at(after.step)) return false;
    }
    if (step.op == Op::send && options_.capacity != kReadInPlace &&
        channel(lane.rank, step.peer, lane.lane).size() >= at(options_.capacity)) {
      return false;
    }
    if (reads_peer(step.op) && channel(step.peer, lane.rank, lane.lane).empty()) return false;
    return !writes_dst(step.op) || !someone_will_read(cells_of(lane.rank, step.dst));
  }

  bool someone_will_read(const std::vector<std::size_t>& cells) const {
    for (const auto& [ends, parcels] : channels_) {
      for (const Parcel& parcel : parcels) {
        if (std::find_first_of(cells.begin(), cells.end(), parcel.cells.begin(), parcel.cells.end()) != cells.end()) {
          return true;
        }
      }
    }
    return false;
  }

  std::vector<std::size_t> cells_of(int rank, const Slice& slice) const {
    const auto& buffer = ranks_[at(rank)].cells[static_cast<int>(slice.buffer)];
    if (slice.count < 1 || slice.first < 0 || slice.first + slice.count > static_cast<int>(buffer.size())) {
      throw Wrong("slice outside of its buffer");
    }
    return {buffer.begin() + slice.first, buffer.begin() + slice.first + slice.count};
  }

  std::vector<Elements> read(const std::vector<std::size_t>& cells) const {
    std::vector<Elements> data;
    for (const std::size_t cell : cells) {
      if (!cells_[cell].written) throw Wrong("reads memory that was never written");
      data.push_back(cells_[cell].data);
    }
    return data;
  }

  static std::vector<Elements> sum(std::vector<Elements> a, const std::vector<Elements>& b) {
    if (a.size() != b.size()) throw Wrong("chunk counts differ");
    for (std::size_t c = 0; c < a.size(); ++c) {
      if (a[c].size() != b[c].size()) throw Wrong("chunk sizes differ");
      for (std::size_t i = 0; i < a[c].size(); ++i) a[c][i] += b[c][i];
    }
    return a;
  }

  void write(int rank, const Slice& slice, const std::vector<Elements>& data) {
    const std::vector<std::size_t> cells = cells_of(rank, slice);
    if (cells.size() != data.size()) throw Wrong("chunk counts differ");
    for (std::size_t c = 0; c < cells.size(); ++c) {
      Cell& cell = cells_[cells[c]];
      if (cell.fixed_size >= 0 && cell.fixed_size != static_cast<std::int64_t>(data[c].size())) {
        throw Wrong("a chunk does not fit its place");
      }
      cell.data = data[c];
      cell.written = true;
    }
  }

  void send(const LaneOf& lane, const Step& step) {
    if (step.peer < 0 || step.peer >= plan_.num_ranks) throw Wrong("no such peer");
    const std::vector<std::size_t> cells = cells_of(lane.rank, step.src);
    std::vector<Elements> data = read(cells);
    Parcel parcel;
    if (options_.capacity == kReadInPlace) {
      parcel.cells = cells;
    } else {
      parcel.data = std::move(data);
    }
    channel(lane.rank, step.peer, lane.lane).push_back(std::move(parcel));
  }

  std::vector<Elements> receive(const LaneOf& lane, const Step& step) {
    std::deque<Parcel>& queue = channel(step.peer, lane.rank, lane.lane);
    const Parcel parcel = std::move(queue.front());
    queue.pop_front();
    return options_.capacity == kReadInPlace ? read(parcel.cells) : parcel.data;
  }

  void execute(const LaneOf& lane) {
    const Step& step = step_of(lane);
    const auto own = [&](const Slice& slice) { return read(cells_of(lane.rank, slice)); };
    switch (step.op) {
      case Op::send:
        return send(lane, step);
      case Op::recv:
        return write(lane.rank, step.dst, receive(lane, step));
      case Op::recv_reduce:
        return write(lane.rank, step.dst, sum(own(step.src), receive(lane, step)));
      case Op::copy:
        return write(lane.rank, step.dst, own(step.src));
      case Op::reduce:
        return write(lane.rank, step.dst, sum(own(step.dst), own(step.src)));
    }
  }

  Elements expected(int rank, int chunk) const {
    const int k = plan_.chunks_per_block;
    const auto origin = collectives::origin_of(plan_.kind, plan_.num_ranks, plan_.root, rank, chunk / k);
    const int from = origin.block * k + chunk % k;
    if (!origin.reduced) return inputs_.at({origin.rank, from});
    std::vector<Elements> total{inputs_.at({0, from})};
    for (int r = 1; r < plan_.num_ranks; ++r) total = sum(std::move(total), {inputs_.at({r, from})});
    return total.front();
  }

  void compare() const {
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      const auto& cells = ranks_[at(rank)].cells;
      for (int chunk = 0; chunk < output_chunks(plan_, rank); ++chunk) {
        const Cell& cell = cells_[cells[1][at(chunk)]];
        if (!cell.written || cell.data != expected(rank, chunk)) throw Wrong("wrong output");
      }
      for (int chunk = 0; chunk < input_chunks(plan_, rank) && !options_.in_place; ++chunk) {
        if (cells_[cells[0][at(chunk)]].data != inputs_.at({rank, chunk})) throw Wrong("input changed");
      }
    }
  }

  const Plan& plan_;
  CheckOptions options_;
  std::mt19937_64 random_;
  bool by_priority_;
  std::vector<Cell> cells_;
  std::vector<Rank> ranks_;
  std::vector<LaneOf> lanes_;                                         // in the order in which they are tried
  std::map<std::tuple<int, int, int>, std::deque<Parcel>> channels_;  // from, to, lane
  std::map<std::pair<int, int>, Elements> inputs_;                    // rank, chunk: initial contents
};

}  // namespace

std::string interpret_slow(const Plan& plan, const CheckOptions& options, std::uint64_t seed) {
  try {
    Engine(plan, options, seed).run();
  } catch (const Wrong& wrong) {
    return wrong.what();
  }
  return {};
}

}  // namespace lockstep::plan
