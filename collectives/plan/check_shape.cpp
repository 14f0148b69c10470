#include <fmt/format.h>

#include "collectives/plan/check_parts.h"

namespace lockstep::plan {
namespace {

class ShapeCheck {
 public:
  ShapeCheck(const Plan& plan, Problems& problems) : plan_(plan), problems_(problems) {}

  void run() {
    if (!plan_itself()) return;
    for (int rank = 0; rank < plan_.num_ranks && !problems_.full(); ++rank) {
      const auto& lanes = plan_.ranks[static_cast<std::size_t>(rank)].lanes;
      for (int lane = 0; lane < static_cast<int>(lanes.size()); ++lane) {
        const Lane& steps = lanes[static_cast<std::size_t>(lane)];
        for (int s = 0; s < static_cast<int>(steps.size()); ++s) {
          step({rank, lane, s}, steps[static_cast<std::size_t>(s)]);
        }
      }
    }
  }

 private:
  bool plan_itself() {
    const int n = plan_.num_ranks;
    if (n < 1) problems_.add({}, fmt::format("num_ranks is {}, must be at least 1", n));
    if (plan_.ranks.size() != static_cast<std::size_t>(n)) {
      problems_.add({}, fmt::format("has steps for {} ranks, num_ranks is {}", plan_.ranks.size(), n));
    }
    if (plan_.root < 0 || plan_.root >= n) problems_.add({}, fmt::format("root {} is not in 0..{}", plan_.root, n - 1));
    if (plan_.chunks_per_block < 1) problems_.add({}, "chunks_per_block must be at least 1");
    if (plan_.scratch_chunks < 0) problems_.add({}, "scratch_chunks must not be negative");
    return problems_.empty();
  }

  void step(const StepPlace& where, const Step& step) {
    operation(where, step);
    if (reads_src(step.op)) slice(where, step.src, "reads");
    if (writes_dst(step.op)) slice(where, step.dst, "writes");
    if (reads_src(step.op) && writes_dst(step.op) && step.src.count != step.dst.count) {
      problems_.add(where, fmt::format("reads {} chunks but writes {}", step.src.count, step.dst.count));
    }
    after(where, step.after);
  }

  void operation(const StepPlace& where, const Step& step) {
    const bool reduces = step.op == Op::recv_reduce || step.op == Op::reduce;
    if (reduces && !collectives::has_op(plan_.kind)) {
      problems_.add(where, fmt::format("{} reduces, but {} has no reduction", name_of(step.op), name_of(plan_.kind)));
    }
    if (step.op != Op::send && !reads_peer(step.op)) return;
    if (step.peer < 0 || step.peer >= plan_.num_ranks) {
      problems_.add(where, fmt::format("peer {} is not in 0..{}", step.peer, plan_.num_ranks - 1));
    } else if (step.peer == where.rank) {
      problems_.add(where, "peer is the rank itself; use copy or reduce");
    }
  }

  void slice(const StepPlace& where, const Slice& slice, const char* verb) {
    const int size = slice.buffer == Buffer::input    ? input_chunks(plan_, where.rank)
                     : slice.buffer == Buffer::output ? output_chunks(plan_, where.rank)
                                                      : plan_.scratch_chunks;
    if (slice.count < 1) {
      problems_.add(where, fmt::format("{} {} chunks, must be at least 1", verb, slice.count));
    } else if (slice.first < 0 || slice.count > size || slice.first > size - slice.count) {
      problems_.add(where,
                    fmt::format("{} chunks {} to {} of {}, which has {} on this rank", verb, slice.first,
                                static_cast<long long>(slice.first) + slice.count - 1, name_of(slice.buffer), size));
    }
  }

  void after(const StepPlace& where, const After& after) {
    if (after.lane < 0) return;
    const auto& lanes = plan_.ranks[static_cast<std::size_t>(where.rank)].lanes;
    if (after.lane == where.lane) {
      problems_.add(where, "waits (after) for its own lane, whose steps run in order anyway");
    } else if (after.lane >= static_cast<int>(lanes.size()) || after.step < 0 ||
               after.step >= static_cast<int>(lanes[static_cast<std::size_t>(after.lane)].size())) {
      problems_.add(where,
                    fmt::format("waits (after) for lane {} step {}, which does not exist", after.lane, after.step));
    }
  }

  const Plan& plan_;
  Problems& problems_;
};

}  // namespace

void check_shape(const Plan& plan, Problems& problems) {
  ShapeCheck(plan, problems).run();
}

void check_messages(const Plan& plan, const StepIds& ids, const Messages& messages, Problems& problems) {
  for (const Message& message : messages.list) {
    if (problems.full()) return;
    if (message.send < 0 || message.recv < 0) {
      const StepPlace& where = ids.place(message.recv < 0 ? message.send : message.recv);
      problems.add(where, fmt::format("no {} at rank {} in this lane matches it (message {} of its channel)",
                                      message.recv < 0 ? "recv" : "send", step_at(plan, where).peer, message.position));
      continue;
    }
    const int sent = chunks_of(step_at(plan, ids.place(message.send)));
    const StepPlace& where = ids.place(message.recv);
    const int received = chunks_of(step_at(plan, where));
    if (sent != received) {
      problems.add(where, fmt::format("receives {} chunks, but rank {} lane {} step {} sends {}", received,
                                      ids.place(message.send).rank, where.lane, ids.place(message.send).step, sent));
    }
  }
}

}  // namespace lockstep::plan
