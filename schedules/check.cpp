#include "schedules/schedule.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "schedules/play.h"

namespace lockstep::schedules {
namespace {

// ---- Messages: each product that crosses ranks is sent and received once. Problems are in the order of ranks and
// lists. The schedule's computations must have passed their check.

class MessageChecker {
 public:
  explicit MessageChecker(const Schedule& schedule)
      : s_(schedule), made_(num_products(schedule)), sent_(num_products(schedule)), received_(num_products(schedule)) {}

  std::vector<Problem> run() {
    for (std::int32_t r = 0; r < s_.num_ranks(); ++r) {
      const auto& list = s_.of_rank[static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < list.size(); ++i) take(r, i, list[i]);
    }
    if (problems_.empty()) check_pairs();
    return std::move(problems_);
  }

 private:
  void add(std::int32_t rank, std::size_t index, const std::string& what) {
    problems_.push_back({rank, index, token_of(s_.of_rank[static_cast<std::size_t>(rank)][index], s_.slices()) + what});
  }

  void take(std::int32_t rank, std::size_t index, const Action& action) {
    if (is_compute(action.op)) return compute(rank, index, action);
    if (!is_between_stages(action.op)) return;
    if (action.stage < 0 || action.stage >= s_.num_stages() || action.microbatch < 0 ||
        action.microbatch >= s_.num_microbatches) {
      return add(rank, index, ": there is no such stage or microbatch");
    }
    const bool up = action.op == Op::send_activations || action.op == Op::recv_gradient;
    const bool leaves_pipe = up ? s_.is_last(action.stage) : s_.is_first(action.stage);
    if (leaves_pipe || peer_of(s_, action) == rank)
      return add(rank, index, ": no stage on another rank exchanges this message");
    const std::size_t place = product_index(s_, message_of(action));
    std::vector<bool>& done = is_send(action.op) ? sent_ : received_;
    if (done[place]) add(rank, index, " appears a second time");
    if (is_send(action.op) && !made_[place]) add(rank, index, " comes before the action that makes its payload");
    done[place] = true;
  }

  void compute(std::int32_t rank, std::size_t index, const Action& action) {
    for (const Need& need : needs_of(s_, action)) {
      const bool far = s_.rank_of_stage[static_cast<std::size_t>(need.stage)] != rank;
      if (far && !received_[product_index(s_, need)]) {
        add(rank, index,
            std::string(" comes before the receive of ") +
                (need.product == Product::activations ? "its activations" : "its gradient"));
      }
    }
    const auto product = product_of(action.op);
    if (product) made_[product_index(s_, {*product, action.stage, action.microbatch})] = true;
  }

  void check_pairs() {
    for (std::int32_t r = 0; r < s_.num_ranks(); ++r) {
      const auto& list = s_.of_rank[static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (!is_between_stages(list[i].op)) continue;
        const std::size_t place = product_index(s_, message_of(list[i]));
        if (!sent_[place]) add(r, i, ": no rank sends this message");
        if (!received_[place]) add(r, i, ": no rank receives this message");
      }
    }
  }

  const Schedule& s_;
  std::vector<bool> made_;  // by product_index()
  std::vector<bool> sent_;
  std::vector<bool> received_;
  std::vector<Problem> problems_;
};

// ---- Computations.

constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

// Indices in the rank's list of each kind of work of a stage for a microbatch.
struct ActionPlaces {
  std::size_t forward = kNowhere;
  std::size_t backward = kNowhere;
  std::size_t input_gradient = kNowhere;
  std::size_t weight_gradient = kNowhere;
  std::size_t evict = kNowhere;
  std::size_t fetch = kNowhere;

  std::size_t& of(Op op) {
    if (op == Op::forward) return forward;
    if (op == Op::backward) return backward;
    if (op == Op::evict) return evict;
    if (op == Op::fetch) return fetch;
    return op == Op::input_gradient ? input_gradient : weight_gradient;
  }
  std::size_t any_backward() const { return backward == kNowhere ? input_gradient : backward; }
};

class Checker {
 public:
  explicit Checker(const Schedule& schedule)
      : s_(schedule),
        places_(static_cast<std::size_t>(schedule.num_stages()) * static_cast<std::size_t>(schedule.num_microbatches)) {
  }

  std::vector<Problem> run() {
    for (std::int32_t r = 0; r < s_.num_ranks(); ++r) {
      for (std::size_t i = 0; i < list(r).size(); ++i) take(r, i);
    }
    if (!problems_.empty()) return std::move(problems_);
    for (std::int32_t j = 0; j < s_.num_microbatches; ++j) check_microbatch(j);
    if (problems_.empty()) check_slices();
    if (problems_.empty()) check_evictions();
    if (problems_.empty()) check_end();
    if (problems_.empty() && has_messages(s_)) problems_ = MessageChecker(s_).run();
    return std::move(problems_);
  }

 private:
  const std::vector<Action>& list(std::int32_t rank) const { return s_.of_rank[static_cast<std::size_t>(rank)]; }
  std::string text_of(const Action& action) const { return token_of(action, s_.slices()); }
  std::string microbatch_text(std::int32_t j) const {
    const std::string text = "microbatch " + std::to_string(j / s_.slices());
    return s_.slices() == 1 ? text : "slice " + std::to_string(j % s_.slices()) + " of " + text;
  }
  std::int32_t rank_of(std::int32_t stage) const { return s_.rank_of_stage[static_cast<std::size_t>(stage)]; }
  ActionPlaces& places(std::int32_t stage, std::int32_t microbatch) {
    return places_[static_cast<std::size_t>(stage) * static_cast<std::size_t>(s_.num_microbatches) +
                   static_cast<std::size_t>(microbatch)];
  }
  void add(std::int32_t rank, std::size_t index, std::string what) {
    problems_.push_back({rank, index, std::move(what)});
  }

  void take(std::int32_t rank, std::size_t index) {
    const Action& action = list(rank)[index];
    if (!is_compute(action.op) && !is_of_eviction(action.op)) return;
    if (action.stage < 0 || action.stage >= s_.num_stages()) {
      return add(rank, index, text_of(action) + ": stages are 0 to " + std::to_string(s_.num_stages() - 1));
    }
    if (action.microbatch < 0 || action.microbatch >= s_.num_microbatches) {
      return add(rank, index, text_of(action) + ": microbatches are 0 to " + std::to_string(s_.num_microbatches - 1));
    }
    const std::int32_t owner = rank_of(action.stage);
    if (owner != rank) return add(rank, index, text_of(action) + ": the stage is on rank " + std::to_string(owner));
    std::size_t& place = places(action.stage, action.microbatch).of(action.op);
    if (place != kNowhere) return add(rank, index, text_of(action) + " appears a second time");
    place = index;
  }

  // A microbatch belongs to the pipe whose first stage takes it.
  void check_microbatch(std::int32_t microbatch) {
    std::int32_t pipe = -1;
    for (std::int32_t k = 0; k < s_.num_pipes(); ++k) {
      const std::int32_t first = k * s_.stages_per_pipe;
      if (places(first, microbatch).forward == kNowhere) continue;
      if (pipe >= 0) {
        return add(
            rank_of(first), places(first, microbatch).forward,
            microbatch_text(microbatch) + " also goes through pipe " + std::to_string(pipe) + "; allowed: one pipe");
      }
      pipe = k;
    }
    pipe = std::max(pipe, 0);
    for (std::int32_t s = 0; s < s_.num_stages(); ++s) check_stage(s, microbatch, s / s_.stages_per_pipe == pipe);
  }

  void check_stage(std::int32_t stage, std::int32_t microbatch, bool expected) {
    const ActionPlaces& at = places(stage, microbatch);
    const std::int32_t rank = rank_of(stage);
    const auto where = [&] { return microbatch_text(microbatch) + " at stage " + std::to_string(stage); };
    const auto missing = [&](std::string_view what) {
      add(rank, list(rank).size(), std::string(what) + " of " + where());
    };
    const bool any = at.forward != kNowhere || at.backward != kNowhere || at.input_gradient != kNowhere ||
                     at.weight_gradient != kNowhere;
    if (!expected) {
      if (any)
        add(rank, std::min({at.forward, at.backward, at.input_gradient, at.weight_gradient}),
            where() + " belongs to another pipe than the microbatch's first stage");
      return;
    }
    if (at.forward == kNowhere) return missing("no forward");
    const bool split = at.input_gradient != kNowhere || at.weight_gradient != kNowhere;
    if (at.backward != kNowhere && split)
      return add(rank, at.backward, "both a full and a split backward of " + where());
    if (!split && at.backward == kNowhere) return missing("no backward");
    if (split && at.input_gradient == kNowhere) return missing("no input gradient");
    if (split && at.weight_gradient == kNowhere) return missing("no weight gradient");
    const std::size_t back = split ? at.input_gradient : at.backward;
    if (back < at.forward) return add(rank, back, "the backward comes before the forward: " + where());
    if (split && at.weight_gradient < at.input_gradient) {
      add(rank, at.weight_gradient, "the weight gradient comes before the input gradient: " + where());
    }
  }

  // The slices of a microbatch go through one pipe, in order: a slice needs the keys and values of the slices before
  // it, and its backward adds to their gradients.
  void check_slices() {
    for (std::int32_t j = 0; j < s_.num_microbatches; ++j) {
      if (j % s_.slices() == 0) continue;
      for (std::int32_t stage = 0; stage < s_.num_stages(); ++stage) {
        const ActionPlaces& earlier = places(stage, j - 1);
        const ActionPlaces& later = places(stage, j);
        if (later.forward == kNowhere) continue;
        const std::int32_t rank = rank_of(stage);
        const std::string before = text_of({Op::forward, stage, j - 1});
        if (earlier.forward == kNowhere) {
          add(rank, later.forward,
              text_of({Op::forward, stage, j}) + ": the slice before it, " + before + ", is in another pipe");
        } else if (later.forward < earlier.forward) {
          add(rank, later.forward,
              text_of({Op::forward, stage, j}) + " comes before " + before + ", whose keys and values it needs");
        } else if (earlier.any_backward() < later.any_backward()) {
          const Action& back = list(rank)[earlier.any_backward()];
          add(rank, earlier.any_backward(),
              text_of(back) +
                  " comes before the backward of the next slice, which adds to its gradients of keys and values");
        }
      }
    }
  }

  // Evictions come after their forward and are fetched before their backward. A rank either evicts or holds for its
  // partner.
  void check_evictions() {
    std::vector<bool> evicts(s_.of_rank.size());
    for (std::int32_t stage = 0; stage < s_.num_stages(); ++stage) {
      for (std::int32_t j = 0; j < s_.num_microbatches; ++j) {
        const ActionPlaces& at = places(stage, j);
        const std::int32_t rank = rank_of(stage);
        const bool gone = at.evict != kNowhere;
        if (!gone && at.fetch == kNowhere) continue;
        if (!gone || at.fetch == kNowhere) {
          add(rank, gone ? at.evict : at.fetch,
              text_of(list(rank)[gone ? at.evict : at.fetch]) + (gone ? " has no FETCH" : " has no EVICT"));
        } else if (at.evict < at.forward || at.fetch < at.evict || at.any_backward() < at.fetch) {
          add(rank, at.evict,
              text_of({Op::evict, stage, j}) + " and its FETCH are not between the forward and the backward");
        } else if (2 * rank + 1 == s_.num_ranks()) {
          add(rank, at.evict, text_of({Op::evict, stage, j}) + ": the middle rank has no partner to evict to");
        } else {
          evicts[static_cast<std::size_t>(rank)] = true;
          if (evicts[evicts.size() - 1 - static_cast<std::size_t>(rank)]) {
            add(rank, at.evict,
                text_of({Op::evict, stage, j}) + ": its partner evicts, too; allowed: one rank of each pair");
          }
        }
      }
    }
  }

  // Checks how the lists of several ranks fit together.
  void check_end() {
    const std::vector<Waiter> circle = waiting_cycle(s_);
    if (circle.empty()) return;
    add(circle.front().rank, circle.front().index, "deadlock: " + schedules::text_of(s_, circle));
  }

  const Schedule& s_;
  std::vector<ActionPlaces> places_;
  std::vector<Problem> problems_;
};

constexpr std::size_t kBefore = 4;
constexpr std::size_t kShown = 9;

}  // namespace

std::vector<Problem> check(const Schedule& schedule) {
  return Checker(schedule).run();
}

std::string grid_around(const Schedule& schedule, const Problem& problem) {
  const std::size_t first = problem.index < kBefore ? 0 : problem.index - kBefore;
  std::size_t width = 0;
  for (const auto& list : schedule.of_rank) {
    for (const Action& action : list) width = std::max(width, token_of(action, schedule.slices()).size());
  }
  std::string grid;
  for (std::int32_t r = 0; r < schedule.num_ranks(); ++r) {
    const auto& list = schedule.of_rank[static_cast<std::size_t>(r)];
    std::string line = "rank " + std::to_string(r) + (first > 0 ? " ..." : "    ");
    for (std::size_t i = first; i < first + kShown; ++i) {
      const bool marked = r == problem.rank && i == problem.index;
      std::string token = i < list.size() ? token_of(list[i], schedule.slices()) : "";
      token.resize(width, ' ');
      line += (marked ? "[" : " ") + token + (marked ? "]" : " ");
    }
    grid += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return grid;
}

void check_or_throw(const Schedule& schedule) {
  const std::vector<Problem> problems = check(schedule);
  if (problems.empty()) return;
  const Problem& first = problems.front();
  std::string more;
  if (problems.size() > 1) more = " (and " + std::to_string(problems.size() - 1) + " more)";
  throw core::usage_error(schedule.name + ": rank " + std::to_string(first.rank) + ", action " +
                          std::to_string(first.index) + ": " + first.what + more + "\n" + grid_around(schedule, first));
}

namespace {

class StageChannels {
 public:
  StageChannels(const Schedule& schedule, const ChannelRules& rules)
      : s_(schedule),
        rules_(rules),
        at_(schedule.of_rank.size()),
        sent_(num_products(schedule)),
        received_(num_products(schedule)) {
    for (std::int32_t r = 0; r < schedule.num_ranks(); ++r) runnable_.push_back(r);
  }

  std::string run() {
    while (!runnable_.empty()) {
      const std::int32_t rank = runnable_.back();
      runnable_.pop_back();
      while (current(rank) != nullptr && step(rank)) {
      }
    }
    std::string stuck;
    for (std::int32_t r = 0; r < s_.num_ranks(); ++r) {
      if (const Action* action = current(r)) stuck += (stuck.empty() ? "" : "; ") + place_text(r, *action);
    }
    return stuck;
  }

 private:
  const Action* current(std::int32_t rank) const {
    const auto r = static_cast<std::size_t>(rank);
    return at_[r] == s_.of_rank[r].size() ? nullptr : &s_.of_rank[r][at_[r]];
  }
  void advance(std::int32_t rank) { ++at_[static_cast<std::size_t>(rank)]; }
  void wake(std::int32_t rank) { runnable_.push_back(rank); }

  // Advances the rank; returns true if it made progress.
  bool step(std::int32_t rank) {
    if (!is_between_stages(current(rank)->op)) {
      advance(rank);
      return true;
    }
    switch (rules_.waiting) {
      case Waiting::blocking:
        return step_blocking(rank);
      case Waiting::batched:
        return step_batched(rank);
      case Waiting::buffered:
        return step_buffered(rank);
    }
    return false;
  }

  bool step_blocking(std::int32_t rank) {
    const Action& mine = *current(rank);
    const std::int32_t peer = peer_of(s_, mine);
    const Action* const other = current(peer);
    if (other == nullptr || !is_between_stages(other->op) || is_send(other->op) == is_send(mine.op)) return false;
    if (product_index(s_, message_of(*other)) != product_index(s_, message_of(mine))) return false;
    advance(rank);
    advance(peer);
    wake(peer);
    return true;
  }

  bool step_batched(std::int32_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    std::size_t end = at_[r];
    while (end < s_.of_rank[r].size() && !is_compute(s_.of_rank[r][end].op)) ++end;
    bool all_met = true;
    for (std::size_t i = at_[r]; i < end; ++i) {
      const Action& message = s_.of_rank[r][i];
      if (!is_between_stages(message.op)) continue;
      const std::size_t place = product_index(s_, message_of(message));
      const bool send = is_send(message.op);
      std::vector<bool>& mine = send ? sent_ : received_;
      if (!mine[place]) wake(peer_of(s_, message));
      mine[place] = true;
      all_met = all_met && (send ? received_ : sent_)[place];
    }
    if (all_met) at_[r] = end;
    return all_met;
  }

  bool step_buffered(std::int32_t rank) {
    const Action& message = *current(rank);
    const std::int32_t peer = peer_of(s_, message);
    const std::size_t place = product_index(s_, message_of(message));
    const bool send = is_send(message.op);
    std::int32_t& under_way = in_flight_[send ? std::pair(rank, peer) : std::pair(peer, rank)];
    if (send ? under_way == rules_.slots : !sent_[place]) return false;
    under_way += send ? 1 : -1;
    if (send) sent_[place] = true;
    advance(rank);
    wake(peer);
    return true;
  }

  std::string place_text(std::int32_t rank, const Action& action) const {
    std::string text = "rank " + std::to_string(rank) + " at " + token_of(action, s_.slices());
    if (!is_between_stages(action.op)) return text;
    return text + (is_send(action.op) ? " to" : " from") + " rank " + std::to_string(peer_of(s_, action));
  }

  const Schedule& s_;
  const ChannelRules rules_;
  std::vector<std::size_t> at_;  // index in each rank's list
  std::vector<bool> sent_;       // by product_index(): the send has started
  std::vector<bool> received_;
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> in_flight_;  // by (sender, receiver)
  std::vector<std::int32_t> runnable_;
};

}  // namespace

std::string hang_of(const Schedule& with_messages, const ChannelRules& rules) {
  return StageChannels(with_messages, rules).run();
}

}  // namespace lockstep::schedules
