// Runs a plan on symbols, each lane as far as it can go. One order of running is representative of all: channels are
// first-in first-out, and races have been excluded before, so the data that each step reads does not depend on timing
// (Kahn networks).
#include <fmt/format.h>

#include "collectives/plan/check_parts.h"
#include "collectives/plan/messages.h"
#include "collectives/plan/symbolic_memory.h"
#include "core/index.h"

namespace lockstep::plan {
namespace {

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
      const int chunks = reads_in_place() ? 0 : chunks_of(step_at(plan_, ids_.place(message.send)));
      first.push_back(first.back() + chunks);
    }
    return first;
  }

  // Event that a step has to wait for now; -1: it can run.
  int awaited(int id) const {
    const StepPlace& where = ids_.place(id);
    const Step& step = step_at(plan_, where);
    for (const After& after : step.after) {
      const int earlier = ids_.id(where.rank, after);
      if (!lanes_.done(earlier)) return earlier;
    }
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
    const StepPlace& where = ids_.place(id);
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
    const StepPlace& sender = ids_.place(messages_.list[at(message)].send);
    for (int i = 0; i < chunks_of(step); ++i) {
      cells_.push_back(reads_in_place() ? locations_.of(sender.rank, step_at(plan_, sender).src, i)
                                        : first_cell_[at(message)] + i);
    }
  }

  void report_deadlock() {
    for (int lane = 0; lane < ids_.num_lanes() && !problems_.full(); ++lane) {
      const int id = lanes_.stands_at(lane);
      if (id >= 0) {
        problems_.add(ids_.place(id), "deadlock: waits for " + describe_event(id, awaited(id)));
      }
    }
  }

  std::string describe_event(int waiting, int event) const {
    if (event >= ids_.num_steps()) {
      return "memory that it writes to be read by " + describe_step(reader_of(event - ids_.num_steps()));
    }
    const bool for_room =
        step_at(plan_, ids_.place(waiting)).op == Op::send && ids_.place(event).rank != ids_.place(waiting).rank;
    return (for_room ? "room in the channel, by " : "") + describe_step(event);
  }

  // A receive that has yet to read a location.
  int reader_of(int location) const {
    for (const Message& message : messages_.list) {
      if (!lanes_.done(message.send) || lanes_.done(message.recv)) continue;
      const StepPlace& sender = ids_.place(message.send);
      const Slice& src = step_at(plan_, sender).src;
      for (int i = 0; i < src.count; ++i) {
        if (locations_.of(sender.rank, src, i) == location) return message.recv;
      }
    }
    return -1;
  }

  std::string describe_step(int id) const {
    const StepPlace& place = ids_.place(id);
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
