#include "schedules/step/check_exchange.h"

#include <map>
#include <utility>

namespace lockstep::schedules {
namespace {

class ExchangeChecker {
 public:
  ExchangeChecker(const Step& step, StepProblems& problems) : step_(step), problems_(problems) {}

  void check_messages() {
    struct Message {
      std::size_t sender = 0;
      std::uint32_t task = 0;
      bool taken = false;
    };
    std::map<std::pair<std::int32_t, std::int32_t>, Message> sent;  // by receiver and tag
    for_tasks(step_, [&](std::size_t r, std::uint32_t i, const Task& task) {
      if (!is_send(task.op)) return;
      if (!sent.try_emplace({task.peer, task.tag}, Message{r, i}).second) {
        add(r, i, "a second message to rank " + std::to_string(task.peer) + " with tag " + std::to_string(task.tag));
      }
    });
    std::vector<std::int32_t> receives(step_.of_rank.size(), 0);
    for_tasks(step_, [&](std::size_t r, std::uint32_t, const Task& task) { receives[r] += is_recv(task.op) ? 1 : 0; });
    for_tasks(step_, [&](std::size_t r, std::uint32_t i, const Task& task) {
      if (!is_recv(task.op)) return;
      if (task.tag < 0 || task.tag >= receives[r]) return add(r, i, "tags are 0 to " + std::to_string(receives[r] - 1));
      const auto found = sent.find({static_cast<std::int32_t>(r), task.tag});
      if (found == sent.end()) return add(r, i, "no rank sends tag " + std::to_string(task.tag));
      Message& message = found->second;
      const Task& send = step_.of_rank[message.sender].tasks[message.task];
      if (std::exchange(message.taken, true)) add(r, i, "a second receive of tag " + std::to_string(task.tag));
      if (static_cast<std::int32_t>(message.sender) != task.peer) {
        add(r, i,
            "waits for rank " + std::to_string(task.peer) + ", and rank " + std::to_string(message.sender) +
                " sends its tag");
      }
      if (send.amount != task.amount) add(r, i, "gets " + std::to_string(send.amount) + " bytes");
    });
    for (const auto& [to, message] : sent) {
      if (!message.taken) add(message.sender, message.task, "no rank receives it");
    }
  }

  void check_collectives() {
    // By group and lane: the first member that issues collectives, with these, and the number of such members.
    std::map<std::pair<std::int32_t, Lane>, std::pair<std::size_t, std::vector<Collective>>> first;
    std::map<std::pair<std::int32_t, Lane>, std::size_t> members;
    for (std::size_t r = 0; r < step_.of_rank.size(); ++r) {
      for (auto& [where, issued] : collectives_of(r)) {
        ++members[where];
        if (!is_member(r, where.first)) {
          add(r, issued.front().task, "the rank is not a member of group " + std::to_string(where.first));
          continue;
        }
        const auto [at, is_first] = first.try_emplace(where, r, issued);
        if (!is_first) compare(r, issued, at->second.first, at->second.second);
      }
    }
    for (const auto& [where, issuer] : first) {
      const auto& ranks = step_.groups[static_cast<std::size_t>(where.first)].ranks;
      if (members[where] == ranks.size()) continue;
      add(issuer.first, issuer.second.front().task,
          "only " + std::to_string(members[where]) + " of the group's " + std::to_string(ranks.size()) +
              " ranks issue its collectives in lane " + std::string(name_of(where.second)));
    }
  }

 private:
  struct Collective {
    Comm comm = Comm::none;
    std::int64_t bytes = 0;
    std::int32_t place = -1;  // index of the stage in its pipe, equal for copies of a stage
    std::int32_t part = -1;
    std::uint32_t task = 0;  // index in the rank's tasks

    bool meets(const Collective& other) const {
      return comm == other.comm && bytes == other.bytes && place == other.place && part == other.part;
    }
    std::string text() const {
      std::string what = std::string(name_of(comm)) + " of " + std::to_string(bytes) + " bytes";
      if (place >= 0) what += " of place " + std::to_string(place) + " in its pipe";
      if (part >= 0) what += ", part " + std::to_string(part);
      return what;
    }
  };

  // The operations that one rank issues to each group in each lane.
  std::map<std::pair<std::int32_t, Lane>, std::vector<Collective>> collectives_of(std::size_t r) const {
    std::map<std::pair<std::int32_t, Lane>, std::vector<Collective>> issued;
    const auto& tasks = step_.of_rank[r].tasks;
    for (std::uint32_t i = 0; i < tasks.size(); ++i) {
      if (tasks[i].comm == Comm::none) continue;
      const std::int32_t place = tasks[i].stage < 0 ? -1 : tasks[i].stage % step_.stages_per_pipe;
      issued[{tasks[i].peer, tasks[i].lane}].push_back({tasks[i].comm, tasks[i].amount, place, tasks[i].part, i});
    }
    return issued;
  }

  bool is_member(std::size_t rank, std::int32_t group) const {
    for (const std::int32_t member : step_.groups[static_cast<std::size_t>(group)].ranks) {
      if (member == static_cast<std::int32_t>(rank)) return true;
    }
    return false;
  }

  void compare(std::size_t r, const std::vector<Collective>& mine, std::size_t other,
               const std::vector<Collective>& theirs) {
    for (std::size_t k = 0; k < mine.size(); ++k) {
      if (k == theirs.size())
        return add(r, mine[k].task, "rank " + std::to_string(other) + " does not issue this collective");
      if (mine[k].meets(theirs[k])) continue;
      return add(r, mine[k].task, mine[k].text() + " meets " + theirs[k].text() + " of rank " + std::to_string(other));
    }
    if (mine.size() < theirs.size()) {
      add(other, theirs[mine.size()].task, "rank " + std::to_string(r) + " does not issue this collective");
    }
  }

  void add(std::size_t rank, std::uint32_t task, std::string what) { problems_.add(rank, task, std::move(what)); }

  const Step& step_;
  StepProblems& problems_;
};

}  // namespace

void check_exchange(const Step& step, StepProblems& problems) {
  ExchangeChecker checker(step, problems);
  checker.check_messages();
  checker.check_collectives();
}

}  // namespace lockstep::schedules
