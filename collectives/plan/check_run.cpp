// Runs a plan on symbols, each lane as far as it can go. One order of running is representative of all: channels are
// first-in first-out, and races have been excluded before, so the data that each step reads does not depend on timing
// (Kahn networks).
#include <fmt/format.h>

#include <algorithm>

#include "collectives/plan/check_parts.h"
#include "collectives/plan/messages.h"
#include "core/index.h"

namespace lockstep::plan {
namespace {

// "chunk 3 of rank 1's input" or "chunk 3 summed over all ranks"
std::string describe(const Moved& moved) {
  if (moved.origin < 0) return fmt::format("chunk {} summed over all ranks", moved.chunk);
  return fmt::format("chunk {} of rank {}'s input", moved.chunk, moved.origin);
}

// Symbolic content of chunk-sized cells, for the checker. In a collective that reduces, a cell is an input chunk's
// index and the set of ranks whose contributions it sums; otherwise it is one rank's input chunk.
class Symbols {
 public:
  Symbols(int num_cells, int num_ranks, bool reduces)
      : num_ranks_(num_ranks),
        reduces_(reduces),
        num_words_(reduces ? (at(num_ranks) + 63) / 64 : 0),
        chunk_(at(num_cells), -1),
        origin_(reduces ? 0 : at(num_cells), -1),
        num_contributors_(reduces ? at(num_cells) : 0, 0),
        words_(at(num_cells) * num_words_, 0) {}

  void put_input(int cell, int rank, int chunk) {
    chunk_[at(cell)] = chunk;
    if (reduces_) {
      words_of(cell)[at(rank) / 64] = std::uint64_t{1} << (at(rank) % 64);
      num_contributors_[at(cell)] = 1;
    } else {
      origin_[at(cell)] = rank;
    }
  }
  bool empty(int cell) const { return chunk_[at(cell)] < 0; }
  void copy(int to, int from) {
    chunk_[at(to)] = chunk_[at(from)];
    if (reduces_) {
      if (to != from) std::copy_n(words_of(from), num_words_, words_of(to));
      num_contributors_[at(to)] = num_contributors_[at(from)];
    } else {
      origin_[at(to)] = origin_[at(from)];
    }
  }
  // to <- to (+) from. Returns false and does nothing if they are different chunks, or a rank's contribution is in
  // both.
  bool add(int to, int from) {
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

  // Fields as in Moved.
  Moved content(int cell) const {
    if (!reduces_) return {origin_[at(cell)], chunk_[at(cell)], true};
    return {-1, chunk_[at(cell)], num_contributors_[at(cell)] == num_ranks_};
  }
  // "nothing", "chunk 3 of rank 1's input", "chunk 3 summed over ranks 0-2,5"
  std::string describe(int cell) const {
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

 private:
  std::uint64_t* words_of(int cell) { return words_.data() + at(cell) * num_words_; }
  const std::uint64_t* words_of(int cell) const { return words_.data() + at(cell) * num_words_; }

  int num_ranks_;
  bool reduces_;
  std::size_t num_words_;
  std::vector<int> chunk_;             // [cell] -1: never written
  std::vector<int> origin_;            // [cell] if not reduces
  std::vector<int> num_contributors_;  // [cell] if reduces
  std::vector<std::uint64_t> words_;   // [cell][num_words_] if reduces: bit r for rank r
};

// The memory of all ranks, on symbols: the effect of each step, and the check of the outputs at the end.
class SymbolicMemory {
 public:
  // Cells are the locations, followed by `message_cells` more for messages in flight.
  SymbolicMemory(const Plan& plan, const Locations& locations, bool in_place, int message_cells)
      : plan_(plan),
        locations_(locations),
        in_place_(in_place),
        symbols_(locations.size() + message_cells, plan.num_ranks, collectives::has_op(plan.kind)),
        expected_(at(locations.size())),
        write_stamp_(at(locations.size()), -1) {
    put_inputs();
    find_expected_outputs();
  }

  // Runs a step. `message`: the cells that a send copies its chunks to (empty: it copies nothing) or that a receive
  // reads. Returns the problem, or an empty text.
  std::string run(int step_id, const StepIndex& where, const Step& step, std::span<const int> message,
                  Contents& contents) {
    std::string problem = writes_dst(step.op) ? refuse_write(step_id, where, step) : "";
    for (int i = 0; i < chunks_of(step) && problem.empty(); ++i) {
      const int cell = locations_.of(where.rank, step.op == Op::send ? step.src : step.dst, i);
      problem = step.op == Op::send ? run_send(cell, step.src, i, message) : run_write(where, step, i, message);
      if (problem.empty()) contents.set(step_id, i, symbols_.content(cell));
    }
    return problem;
  }

  struct WrongOutput {
    int rank;
    std::string what;
  };
  std::vector<WrongOutput> compare_outputs() const {
    std::vector<WrongOutput> wrong;
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      for (int c = 0; c < output_chunks(plan_, rank); ++c) {
        const int location = locations_.of(rank, output(c), 0);
        const Moved& want = expected_[at(location)];
        if (!symbols_.empty(location) && symbols_.content(location) == want) continue;
        wrong.push_back(
            {rank, fmt::format("output[{}] ends as {}, expected {}", c, symbols_.describe(location), describe(want))});
      }
    }
    return wrong;
  }

 private:
  void put_inputs() {
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      for (int c = 0; c < input_chunks(plan_, rank); ++c) {
        symbols_.put_input(locations_.of(rank, input(c), 0), rank, c);
      }
    }
  }
  void find_expected_outputs() {
    const int k = plan_.chunks_per_block;
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      for (int c = 0; c < output_chunks(plan_, rank); ++c) {
        const auto origin = collectives::origin_of(plan_.kind, plan_.num_ranks, plan_.root, rank, c / k);
        expected_[at(locations_.of(rank, output(c), 0))] = {origin.reduced ? -1 : origin.rank, origin.block * k + c % k,
                                                            true};
      }
    }
  }
  std::string refuse_write(int step_id, const StepIndex& where, const Step& step) {
    for (int i = 0; i < step.dst.count; ++i) {
      const int location = locations_.of(where.rank, step.dst, i);
      write_stamp_[at(location)] = step_id;
      if (step.dst.buffer == Buffer::input && locations_.output_chunk(location) < 0) {
        return fmt::format("writes input[{}], which {}", step.dst.first + i,
                           in_place_ ? "is no output chunk in place" : "must stay as it is");
      }
    }
    for (int i = 0; i < step.src.count && reads_src(step.op); ++i) {
      const int location = locations_.of(where.rank, step.src, i);
      if (write_stamp_[at(location)] == step_id && location != locations_.of(where.rank, step.dst, i)) {
        return "src and dst overlap without being the same";
      }
    }
    return "";
  }
  std::string run_send(int source, const Slice& src, int i, std::span<const int> message) {
    std::string problem = refuse_read(source, src, i);
    if (problem.empty() && !message.empty()) symbols_.copy(message[at(i)], source);
    return problem;
  }
  std::string run_write(const StepIndex& where, const Step& step, int i, std::span<const int> message) {
    const int target = locations_.of(where.rank, step.dst, i);
    const int source = reads_src(step.op) ? locations_.of(where.rank, step.src, i) : message[at(i)];
    std::string problem = reads_src(step.op) ? refuse_read(source, step.src, i) : "";
    if (problem.empty() && reads_dst(step.op)) problem = refuse_read(target, step.dst, i);
    if (!problem.empty()) return problem;
    if (!reads_dst(step.op)) symbols_.copy(target, source);
    if (step.op == Op::reduce) problem = add(target, source);
    if (step.op == Op::recv_reduce) problem = add(target, message[at(i)]);
    return problem.empty() ? refuse_size(target) : problem;
  }
  std::string refuse_read(int cell, const Slice& slice, int i) const {
    if (!symbols_.empty(cell)) return "";
    return fmt::format("reads {}[{}], to which nothing was written", name_of(slice.buffer), slice.first + i);
  }
  std::string add(int target, int source) {
    if (symbols_.add(target, source)) return "";
    const bool same_chunk = symbols_.content(target).chunk == symbols_.content(source).chunk;
    return fmt::format("reduces {} with {}: {}", symbols_.describe(target), symbols_.describe(source),
                       same_chunk ? "a contribution would count twice" : "these are different chunks");
  }
  // On the way to its final content, an output chunk may hold only data that has its size for every count of elements.
  std::string refuse_size(int location) const {
    if (locations_.output_chunk(location) < 0) return "";
    const Moved is = symbols_.content(location);
    const Moved& want = expected_[at(location)];
    const bool fits = plan_.kind == collectives::Kind::all_to_all_v
                          ? is.origin == want.origin && is.chunk == want.chunk
                          : is.chunk % plan_.chunks_per_block == want.chunk % plan_.chunks_per_block;
    if (fits) return "";
    return fmt::format("writes {} into output[{}], whose size is that of {}", symbols_.describe(location),
                       locations_.output_chunk(location), describe(want));
  }

  const Plan& plan_;
  const Locations& locations_;
  bool in_place_;
  Symbols symbols_;
  std::vector<Moved> expected_;   // [location] if it is an output chunk
  std::vector<int> write_stamp_;  // [location] the last step that wrote it
};

// Events in addition to the steps: location l becomes free to be written is num_steps + l.
class SymbolicRun {
 public:
  SymbolicRun(const Plan& plan, const StepIds& ids, const Messages& messages, const Locations& locations,
              const CheckOptions& options, Contents& contents, Problems& problems)
      : plan_(plan),
        ids_(ids),
        messages_(messages),
        locations_(locations),
        capacity_(options.capacity),
        contents_(contents),
        problems_(problems),
        first_cell_(first_cells_of_messages()),
        memory_(plan, locations, options.in_place, first_cell_.back() - locations.size()),
        unread_sends_(at(locations.size()), 0),
        lanes_(ids, ids.num_steps() + locations.size()) {}

  void run() {
    lanes_.run([this](int id) { return awaited(id); }, [this](int id) { return execute(id); });
    if (problems_.empty()) report_deadlock();
    if (!problems_.empty()) return;
    for (const auto& wrong : memory_.compare_outputs()) problems_.add({wrong.rank, -1, -1}, wrong.what);
  }

 private:
  bool reads_in_place() const { return capacity_ == kReadInPlace; }

  // Cells are all locations, then the chunks of every message that is copied.
  std::vector<int> first_cells_of_messages() const {
    std::vector<int> first{locations_.size()};
    for (const Message& message : messages_.list) {
      const int chunks = reads_in_place() ? 0 : chunks_of(step_at(plan_, ids_.index(message.send)));
      first.push_back(first.back() + chunks);
    }
    return first;
  }

  // Event that a step has to wait for now; -1: it can run.
  int awaited(int id) const {
    const StepIndex& where = ids_.index(id);
    const Step& step = step_at(plan_, where);
    if (const int earlier = lanes_.awaited_by(step, where.rank); earlier >= 0) return earlier;
    const int message = messages_.of_step[at(id)];
    if (step.op == Op::send && !reads_in_place() && messages_.list[at(message)].position >= capacity_) {
      const int makes_room = messages_.list[at(message - capacity_)].recv;
      if (!lanes_.done(makes_room)) return makes_room;
    }
    if (reads_peer(step.op) && !lanes_.done(messages_.list[at(message)].send)) return messages_.list[at(message)].send;
    return reads_in_place() && writes_dst(step.op) ? unread_location(where.rank, step.dst) : -1;
  }

  int unread_location(int rank, const Slice& dst) const {
    for (int i = 0; i < dst.count; ++i) {
      const int location = locations_.of(rank, dst, i);
      if (unread_sends_[at(location)] > 0) return ids_.num_steps() + location;
    }
    return -1;
  }

  bool execute(int id) {
    const StepIndex& where = ids_.index(id);
    const Step& step = step_at(plan_, where);
    find_message_cells(id, step);
    const bool sends_in_place = step.op == Op::send && reads_in_place();
    std::string problem = memory_.run(id, where, step, sends_in_place ? std::span<const int>() : cells_, contents_);
    if (!problem.empty()) {
      problems_.add(where, std::move(problem));
      lanes_.stop();
      return false;
    }
    if (sends_in_place) {
      for (const int location : cells_) ++unread_sends_[at(location)];
    } else if (reads_peer(step.op) && reads_in_place()) {
      for (const int location : cells_) {
        if (--unread_sends_[at(location)] == 0) lanes_.happen(ids_.num_steps() + location);
      }
    }
    return true;
  }

  // Finds the chunks of a step's message: in the message, or still in the sender's memory.
  void find_message_cells(int id, const Step& step) {
    cells_.clear();
    const int message = messages_.of_step[at(id)];
    if (message < 0) return;
    const StepIndex& sender = ids_.index(messages_.list[at(message)].send);
    for (int i = 0; i < chunks_of(step); ++i) {
      cells_.push_back(reads_in_place() ? locations_.of(sender.rank, step_at(plan_, sender).src, i)
                                        : first_cell_[at(message)] + i);
    }
  }

  void report_deadlock() {
    for (int lane = 0; lane < ids_.num_lanes() && !problems_.full(); ++lane) {
      const int id = lanes_.stands_at(lane);
      if (id >= 0) {
        problems_.add(ids_.index(id), "deadlock: waits for " + describe_event(id, awaited(id)));
      }
    }
  }

  std::string describe_event(int waiting, int event) const {
    if (event >= ids_.num_steps()) {
      return "memory that it writes to be read by " + describe_step(reader_of(event - ids_.num_steps()));
    }
    const bool for_room =
        step_at(plan_, ids_.index(waiting)).op == Op::send && ids_.index(event).rank != ids_.index(waiting).rank;
    return (for_room ? "room in the channel, by " : "") + describe_step(event);
  }

  // A receive that has yet to read a location.
  int reader_of(int location) const {
    for (const Message& message : messages_.list) {
      if (!lanes_.done(message.send) || lanes_.done(message.recv)) continue;
      const StepIndex& sender = ids_.index(message.send);
      const Slice& src = step_at(plan_, sender).src;
      for (int i = 0; i < src.count; ++i) {
        if (locations_.of(sender.rank, src, i) == location) return message.recv;
      }
    }
    return -1;
  }

  std::string describe_step(int id) const {
    const StepIndex& place = ids_.index(id);
    return fmt::format("rank {} lane {} step {} ({})", place.rank, place.lane, place.step,
                       name_of(step_at(plan_, place).op));
  }

  const Plan& plan_;
  const StepIds& ids_;
  const Messages& messages_;
  const Locations& locations_;
  int capacity_;
  Contents& contents_;
  Problems& problems_;
  std::vector<int> first_cell_;  // [message], plus one for the end
  SymbolicMemory memory_;
  std::vector<int> unread_sends_;  // [location] if reads_in_place
  LaneRun lanes_;
  std::vector<int> cells_;  // those of the message of the current step
};

}  // namespace

void check_run(const Plan& plan, const StepIds& ids, const Messages& messages, const Locations& locations,
               const CheckOptions& options, Contents& contents, Problems& problems) {
  SymbolicRun(plan, ids, messages, locations, options, contents, problems).run();
}

}  // namespace lockstep::plan
