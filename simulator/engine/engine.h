// Discrete-event simulation of a step: lanes run their tasks in order, messages take links, collectives start when all
// members are there. Names no schedule and no algorithm.
//
// Time is in whole picoseconds, so that runs repeat exactly and sums do not depend on their order. Events at the same
// time are handled in the order of rank and lane.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::simulator {

// Links and the messages on them. A message takes a path of links and arrives one latency after it has passed the last
// link.

struct Link {
  double ps_per_byte = 0;  // 0: no limit
  // true: concurrent messages share the link equally; false: one message at a time, in order of arrival.
  bool fair = false;
};

// The path from one rank to another: its port, the links between, and the other's port, all occupied at once. On a
// torus, devices between links buffer what cannot proceed (virtual cut-through: Kermani, Kleinrock 1979), so each link
// is occupied from when it is free. Paths of up to four links need no allocation.
class Path {
 public:
  explicit Path(std::int64_t latency, bool buffers = false) : latency_ps(latency), is_buffered(buffers) {}
  void add(std::int32_t link) {
    if (num_ < few_.size() && many_.empty()) {
      few_[num_++] = link;
      return;
    }
    if (many_.empty()) many_.assign(few_.begin(), few_.end());
    many_.push_back(link);
  }
  std::span<const std::int32_t> links() const {
    return many_.empty() ? std::span(few_).first(num_) : std::span<const std::int32_t>(many_);
  }

  std::int64_t latency_ps = 0;
  bool is_buffered = false;

 private:
  std::array<std::int32_t, 4> few_ = {};
  std::size_t num_ = 0;
  std::vector<std::int32_t> many_;
};

// The paths of messages between ranks of a step.
class Topology {
 public:
  virtual ~Topology() = default;
  virtual Path path(std::int32_t from, std::int32_t to) const = 0;
  virtual const std::vector<Link>& links() const = 0;
};

struct Departure {
  std::int64_t start_ps = 0;
  std::int64_t left_ps = 0;    // the sender's port is free again
  std::int64_t passed_ps = 0;  // the message has passed its last link; it arrives one latency later
};

// The state of all links. Calls must come in order of time.
class LinkState {
 public:
  explicit LinkState(const std::vector<Link>& links);

  // For paths whose links carry one message at a time: the departure is known immediately.
  Departure book(const Path& path, std::int64_t bytes, std::int64_t now_ps);

  // For paths with a fair link; `message` is the caller's id. When a message ends depends on later ones: after each
  // call, next_end() returns the message that ends next if no other starts.
  static bool is_fair(const Path& path, const std::vector<Link>& links);
  void start(std::uint32_t message, const Path& path, std::int64_t bytes, std::int64_t now_ps);
  struct End {
    std::uint32_t message = 0;
    std::int64_t time_ps = 0;
  };
  std::optional<End> next_end() const;
  void finish(std::uint32_t message, std::int64_t now_ps);

 private:
  struct Flow {
    std::uint32_t message = 0;
    Path path;
    double left_bytes = 0;
    double ps_per_byte = 0;  // current rate
    std::int64_t since_ps = 0;
  };
  Departure book_at_once(const Path& path, std::int64_t bytes, std::int64_t now_ps);
  Departure book_in_turn(const Path& path, std::int64_t bytes, std::int64_t now_ps);
  void change_shares(std::int64_t now_ps);
  double pace(const Flow& flow) const;

  const std::vector<Link>& links_;
  std::vector<std::int64_t> free_ps_;   // per link
  std::vector<std::int32_t> carrying_;  // number of fair messages per link
  std::vector<Flow> flows_;             // all fair messages in flight
};

// The simplest network: every rank has an equal port to one switch.

class OneSwitch : public Topology {
 public:
  // `port`: in each direction.
  OneSwitch(std::int32_t ranks, std::int64_t latency_ps, Link port = {})
      : latency_ps_(latency_ps), links_(2 * static_cast<std::size_t>(ranks), port) {}

  Path path(std::int32_t from, std::int32_t to) const override {
    Path path(latency_ps_);
    path.add(2 * from);
    path.add(2 * to + 1);
    return path;
  }
  const std::vector<Link>& links() const override { return links_; }

 private:
  std::int64_t latency_ps_;
  std::vector<Link> links_;
};

// Returns the duration of a group's collective, in picoseconds, once all members are there. May read comm, peer (the
// group's index) and amount of the task.
using CollectiveTime = std::function<std::int64_t(const schedules::Group& group, const schedules::Task& task)>;

struct Simulation {
  // A kernel's span is the time in which it runs. A communication's span is the time in which its bytes move: for a
  // receive from the message's start to its arrival, for a collective from the arrival of its last member.
  schedules::StepTimeline timeline;
  std::int64_t makespan_ps = 0;
  std::int64_t events = 0;
};

// True for a collective that leaves all multiprocessors to kernels. May read the same as CollectiveTime.
using TakesNone = std::function<bool(const schedules::Task& task)>;

// While n collectives of a rank run, other than those of which `takes_none` is true, its kernels run at 1 - n x `taken`
// of their rate, as their thread blocks occupy the device. Throws core::Error(usage) on a deadlock, with the task at
// which each rank is blocked.
Simulation simulate(const schedules::Step& step, const Topology& topology, const CollectiveTime& collective_time,
                    double taken = 0, const TakesNone& takes_none = {});

}  // namespace lockstep::simulator
