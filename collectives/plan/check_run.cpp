// Runs a plan on symbols, each lane as far as it gets. One order of running stands for all: channels are first-in
// first-out, and races were ruled out before, so what each step reads does not depend on timing (Kahn networks).
#include <fmt/format.h>

#include "collectives/plan/check_parts.h"
#include "collectives/plan/symbols.h"

namespace lockstep::plan {
namespace {

std::size_t at(int i) {
  return static_cast<std::size_t>(i);
}

// All that a lane can wait for is an event: step s done is event s; location l free to be written is num_steps + l.
class SymbolicRun {
 public:
  SymbolicRun(const Plan& plan, const StepIds& ids, const Messages& messages, const Locations& locations,
              const CheckOptions& options, Contents& contents, Problems& problems)
      : plan_(plan),
        ids_(ids),
        messages_(messages),
        locations_(locations),
        options_(options),
        contents_(contents),
        problems_(problems),
        buffers_(first_cells_of_messages()),
        symbols_(buffers_.back(), plan.num_ranks, collectives::has_op(plan.kind)),
        done_(at(ids.num_steps()), 0),
        unread_sends_(at(locations.size()), 0),
        expected_(at(locations.size())),
        write_stamp_(at(locations.size()), -1),
        next_(at(ids.num_lanes())),
        first_waiter_(at(ids.num_steps() + locations.size()), -1),
        next_waiter_(at(ids.num_lanes()), -1) {}

  void run() {
    put_inputs();
    find_expected_outputs();
    for (int lane = 0; lane < ids_.num_lanes(); ++lane) {
      next_[at(lane)] = ids_.lane_begin(lane);
      ready_.push_back(lane);
    }
    while (!ready_.empty() && problems_.empty()) {
      const int lane = ready_.back();
      ready_.pop_back();
      run_lane(lane);
    }
    if (problems_.empty()) report_deadlock();
    if (problems_.empty()) compare_outputs();
  }

 private:
  // Cells: all locations, then the chunks of every message that is copied.
  std::vector<int> first_cells_of_messages() const {
    std::vector<int> first{locations_.size()};
    for (const Message& message : messages_.list) {
      const int chunks = options_.capacity == kReadInPlace ? 0 : chunks_of(step_at(plan_, ids_.place(message.send)));
      first.push_back(first.back() + chunks);
    }
    return first;
  }

  void put_inputs() {
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      for (int c = 0; c < input_chunks(plan_, rank); ++c) {
        symbols_.put_input(locations_.of(rank, input(c), 0), rank, c);
      }
    }
  }

  void find_expected_outputs() {
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      for (int c = 0; c < output_chunks(plan_, rank); ++c) {
        const auto origin =
            collectives::origin_of(plan_.kind, plan_.num_ranks, plan_.root, rank, c / plan_.chunks_per_block);
        const int chunk = origin.block * plan_.chunks_per_block + c % plan_.chunks_per_block;
        expected_[at(locations_.of(rank, output(c), 0))] = {origin.reduced ? -1 : origin.rank, chunk, true};
      }
    }
  }

  void run_lane(int lane) {
    while (next_[at(lane)] < ids_.lane_end(lane)) {
      const int id = next_[at(lane)];
      const StepPlace& where = ids_.place(id);
      const int event = awaited(id, where, step_at(plan_, where));
      if (event >= 0) {
        next_waiter_[at(lane)] = first_waiter_[at(event)];
        first_waiter_[at(event)] = lane;
        return;
      }
      ++next_[at(lane)];
      execute(id, where, step_at(plan_, where));
      if (!problems_.empty()) return;
      done_[at(id)] = 1;
      wake(id);
    }
  }

  void wake(int event) {
    for (int lane = first_waiter_[at(event)]; lane >= 0; lane = next_waiter_[at(lane)]) ready_.push_back(lane);
    first_waiter_[at(event)] = -1;
  }

  // The event that a step has to wait for now; -1: it can run.
  int awaited(int id, const StepPlace& where, const Step& step) const {
    const int after = ids_.id(where.rank, step.after);
    if (after >= 0 && !done_[at(after)]) return after;
    if (step.op == Op::send) {
      const int gone = send_that_must_be_received(id);
      if (gone >= 0 && !done_[at(gone)]) return gone;
    }
    if (reads_peer(step.op)) {
      const int send = message_of(id).send;
      if (!done_[at(send)]) return send;
    }
    if (options_.capacity != kReadInPlace || !writes_dst(step.op)) return -1;
    for (int i = 0; i < step.dst.count; ++i) {
      const int location = locations_.of(where.rank, step.dst, i);
      if (unread_sends_[at(location)] > 0) return ids_.num_steps() + location;
    }
    return -1;
  }

  const Message& message_of(int id) const { return messages_.list[at(messages_.of_step[at(id)])]; }
  // The recv that makes room in the channel for this send; -1: there is room from the start.
  int send_that_must_be_received(int id) const {
    const int index = messages_.of_step[at(id)];
    if (options_.capacity == kReadInPlace || messages_.list[at(index)].position < options_.capacity) return -1;
    return messages_.list[at(index - options_.capacity)].recv;
  }
  // Where chunk i of a message is read.
  int message_cell(int id, int i) const {
    const int index = messages_.of_step[at(id)];
    if (options_.capacity != kReadInPlace) return buffers_[at(index)] + i;
    const StepPlace& sender = ids_.place(messages_.list[at(index)].send);
    return locations_.of(sender.rank, step_at(plan_, sender).src, i);
  }

  void execute(int id, const StepPlace& where, const Step& step) {
    if (writes_dst(step.op) && !may_write(id, where, step)) return;
    for (int i = 0; i < chunks_of(step); ++i) {
      const int cell = step.op == Op::send ? execute_send(id, where, step, i) : execute_write(id, where, step, i);
      if (!problems_.empty()) return;
      contents_.set(id, i, symbols_.content(cell));
    }
    if (reads_peer(step.op) && options_.capacity == kReadInPlace) free_sender(id, chunks_of(step));
  }

  bool may_write(int id, const StepPlace& where, const Step& step) {
    for (int i = 0; i < step.dst.count; ++i) {
      const int location = locations_.of(where.rank, step.dst, i);
      write_stamp_[at(location)] = id;
      if (step.dst.buffer == Buffer::input && locations_.output_chunk(location) < 0) {
        problems_.add(where, fmt::format("writes input[{}], which {}", step.dst.first + i,
                                         options_.in_place ? "is no output chunk in place" : "must stay as it is"));
        return false;
      }
    }
    if (!reads_src(step.op)) return true;
    for (int i = 0; i < step.src.count; ++i) {
      const int location = locations_.of(where.rank, step.src, i);
      if (write_stamp_[at(location)] == id && location != locations_.of(where.rank, step.dst, i)) {
        problems_.add(where, "src and dst overlap without being the same");
        return false;
      }
    }
    return true;
  }

  bool exists(int cell, const StepPlace& where, const Slice& slice, int i) {
    if (!symbols_.empty(cell)) return true;
    problems_.add(where,
                  fmt::format("reads {}[{}], to which nothing was written", name_of(slice.buffer), slice.first + i));
    return false;
  }

  int execute_send(int id, const StepPlace& where, const Step& step, int i) {
    const int source = locations_.of(where.rank, step.src, i);
    if (!exists(source, where, step.src, i)) return source;
    if (options_.capacity == kReadInPlace) {
      ++unread_sends_[at(source)];
    } else {
      symbols_.copy(message_cell(id, i), source);
    }
    return source;
  }

  int execute_write(int id, const StepPlace& where, const Step& step, int i) {
    const int target = locations_.of(where.rank, step.dst, i);
    const int source = reads_src(step.op) ? locations_.of(where.rank, step.src, i) : message_cell(id, i);
    if (reads_src(step.op) && !exists(source, where, step.src, i)) return target;
    if (reads_dst(step.op)) {
      if (exists(target, where, step.dst, i)) add(where, target, source);
    } else {
      symbols_.copy(target, source);
      if (step.op == Op::recv_reduce) add(where, target, message_cell(id, i));
    }
    if (problems_.empty()) check_size(where, target);
    return target;
  }

  void add(const StepPlace& where, int target, int source) {
    if (symbols_.add(target, source)) return;
    problems_.add(where, fmt::format("reduces {} with {}: {}", symbols_.describe(target), symbols_.describe(source),
                                     symbols_.content(target).chunk == symbols_.content(source).chunk
                                         ? "a contribution would count twice"
                                         : "these are different chunks"));
  }

  // An output chunk may hold, on the way to its final content, only what has its size for every count of elements.
  void check_size(const StepPlace& where, int location) {
    if (locations_.output_chunk(location) < 0) return;
    const Moved is = symbols_.content(location);
    const Moved& want = expected_[at(location)];
    const bool fits = plan_.kind == collectives::Kind::all_to_all_v
                          ? is.origin == want.origin && is.chunk == want.chunk
                          : is.chunk % plan_.chunks_per_block == want.chunk % plan_.chunks_per_block;
    if (fits) return;
    problems_.add(where, fmt::format("writes {} into output[{}], whose size is that of {}", symbols_.describe(location),
                                     locations_.output_chunk(location), describe(want)));
  }

  void free_sender(int id, int chunks) {
    for (int i = 0; i < chunks; ++i) {
      const int location = message_cell(id, i);
      if (--unread_sends_[at(location)] == 0) wake(ids_.num_steps() + location);
    }
  }

  void report_deadlock() {
    for (int lane = 0; lane < ids_.num_lanes() && !problems_.full(); ++lane) {
      const int id = next_[at(lane)];
      if (id == ids_.lane_end(lane)) continue;
      const StepPlace& where = ids_.place(id);
      problems_.add(where, "deadlock: waits for " + describe_event(id, awaited(id, where, step_at(plan_, where))));
    }
  }

  std::string describe_event(int waiting, int event) const {
    if (event >= ids_.num_steps()) {
      const int location = event - ids_.num_steps();
      for (const Message& message : messages_.list) {
        if (done_[at(message.send)] && !done_[at(message.recv)] && reads(message.send, location)) {
          return "memory that it writes to be read by " + describe_step(message.recv);
        }
      }
    }
    const bool for_room =
        step_at(plan_, ids_.place(waiting)).op == Op::send && ids_.place(event).rank != ids_.place(waiting).rank;
    return (for_room ? "room in the channel, by " : "") + describe_step(event);
  }

  bool reads(int send, int location) const {
    const StepPlace& where = ids_.place(send);
    const Slice& src = step_at(plan_, where).src;
    for (int i = 0; i < src.count; ++i) {
      if (locations_.of(where.rank, src, i) == location) return true;
    }
    return false;
  }

  std::string describe_step(int id) const {
    const StepPlace& place = ids_.place(id);
    return fmt::format("rank {} lane {} step {} ({})", place.rank, place.lane, place.step,
                       name_of(step_at(plan_, place).op));
  }

  void compare_outputs() {
    for (int rank = 0; rank < plan_.num_ranks; ++rank) {
      for (int c = 0; c < output_chunks(plan_, rank); ++c) {
        const int location = locations_.of(rank, output(c), 0);
        if (!symbols_.empty(location) && symbols_.content(location) == expected_[at(location)]) continue;
        problems_.add({rank, -1, -1}, fmt::format("output[{}] ends as {}, expected {}", c, symbols_.describe(location),
                                                  describe(expected_[at(location)])));
      }
    }
  }

  const Plan& plan_;
  const StepIds& ids_;
  const Messages& messages_;
  const Locations& locations_;
  const CheckOptions& options_;
  Contents& contents_;
  Problems& problems_;
  std::vector<int> buffers_;  // [message] its first cell, and one for the end
  Symbols symbols_;
  std::vector<char> done_;         // [step id]
  std::vector<int> unread_sends_;  // [location] in kReadInPlace
  std::vector<Moved> expected_;    // [location] if it is an output chunk
  std::vector<int> write_stamp_;   // [location] the last step that wrote it
  std::vector<int> next_;          // [lane id] step id
  std::vector<int> first_waiter_;  // [event] lane id, head of a list; -1: nobody
  std::vector<int> next_waiter_;   // [lane id] rest of that list
  std::vector<int> ready_;         // lane ids
};

}  // namespace

void check_run(const Plan& plan, const StepIds& ids, const Messages& messages, const Locations& locations,
               const CheckOptions& options, Contents& contents, Problems& problems) {
  SymbolicRun(plan, ids, messages, locations, options, contents, problems).run();
}

}  // namespace lockstep::plan
