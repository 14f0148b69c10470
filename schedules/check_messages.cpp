#include "schedules/check_messages.h"

#include "schedules/messages.h"
#include "schedules/needs.h"
#include "schedules/token.h"

namespace lockstep::schedules {
namespace {

class MessageChecker {
 public:
  explicit MessageChecker(const Schedule& schedule)
      : s_(schedule), made_(num_places(schedule)), sent_(num_places(schedule)), received_(num_places(schedule)) {}

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
    problems_.push_back({rank, index, token_of(s_.of_rank[static_cast<std::size_t>(rank)][index]) + what});
  }

  void take(std::int32_t rank, std::size_t index, const Action& action) {
    if (is_compute(action.op)) return compute(rank, index, action);
    if (!is_message(action.op)) return;
    if (action.stage < 0 || action.stage >= s_.num_stages() || action.microbatch < 0 ||
        action.microbatch >= s_.num_microbatches) {
      return add(rank, index, ": no such stage or microbatch");
    }
    const bool up = action.op == Op::send_activations || action.op == Op::recv_gradient;
    const bool leaves_pipe = up ? s_.is_last(action.stage) : s_.is_first(action.stage);
    if (leaves_pipe || peer_of(s_, action) == rank) return add(rank, index, ": no other rank is at its other end");
    const std::size_t place = place_of(s_, message_of(action));
    std::vector<bool>& done = is_send(action.op) ? sent_ : received_;
    if (done[place]) add(rank, index, " a second time");
    if (is_send(action.op) && !made_[place]) add(rank, index, " before it is made");
    done[place] = true;
  }

  void compute(std::int32_t rank, std::size_t index, const Action& action) {
    for (const Need& need : needs_of(s_, action)) {
      const bool far = s_.rank_of_stage[static_cast<std::size_t>(need.stage)] != rank;
      if (far && !received_[place_of(s_, need)]) {
        add(rank, index,
            std::string(" before it has received ") +
                (need.product == Product::activations ? "its activations" : "its gradient"));
      }
    }
    for (const Product product : {Product::activations, Product::gradient}) {
      if (gives(action, product)) made_[place_of(s_, {product, action.stage, action.microbatch})] = true;
    }
  }

  void check_pairs() {
    for (std::int32_t r = 0; r < s_.num_ranks(); ++r) {
      const auto& list = s_.of_rank[static_cast<std::size_t>(r)];
      for (std::size_t i = 0; i < list.size(); ++i) {
        if (!is_message(list[i].op)) continue;
        const std::size_t place = place_of(s_, message_of(list[i]));
        if (!sent_[place]) add(r, i, ": nobody sends it");
        if (!received_[place]) add(r, i, ": nobody receives it");
      }
    }
  }

  const Schedule& s_;
  std::vector<bool> made_;  // by place of the product
  std::vector<bool> sent_;
  std::vector<bool> received_;
  std::vector<Problem> problems_;
};

}  // namespace

std::vector<Problem> check_messages(const Schedule& schedule) {
  return MessageChecker(schedule).run();
}

}  // namespace lockstep::schedules
