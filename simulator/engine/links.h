// Links, and the messages on them. A message takes a path of links and arrives one latency after it has passed the
// last.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace lockstep::simulator {

struct Link {
  double ps_per_byte = 0;  // 0: no limit
  // Messages move side by side, each with an equal part of the link; else one at a time, in the order in which they
  // came.
  bool fair = false;
};

// From one rank to another: its port, what lies between, the other's port, all taken at once; or the links of a torus,
// between which devices buffer what cannot go on (virtual cut-through: Kermani, Kleinrock 1979), so that each is taken
// from when it is free. Few links need no memory of their own.
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

// Which way a message goes. Ranks are those of the step.
class Topology {
 public:
  virtual ~Topology() = default;
  virtual Path path(std::int32_t from, std::int32_t to) const = 0;
  virtual const std::vector<Link>& links() const = 0;
};

struct Departure {
  std::int64_t start_ps = 0;
  std::int64_t left_ps = 0;    // the sender's port is free again
  std::int64_t passed_ps = 0;  // the message has passed its last link, and arrives one latency later
};

// The state of all links. Calls come in the order of time.
class LinkState {
 public:
  explicit LinkState(const std::vector<Link>& links);

  // Paths of links that carry one message at a time: known at once.
  Departure book(const Path& path, std::int64_t bytes, std::int64_t now_ps);

  // Paths with a fair link: `message` is the caller's name for it. When it ends depends on what comes later: after each
  // call, next_end() is the next message that ends if nothing else starts.
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
    double ps_per_byte = 0;  // now
    std::int64_t since_ps = 0;
  };
  Departure book_at_once(const Path& path, std::int64_t bytes, std::int64_t now_ps);
  Departure book_in_turn(const Path& path, std::int64_t bytes, std::int64_t now_ps);
  void change_shares(std::int64_t now_ps);
  double pace(const Flow& flow) const;

  const std::vector<Link>& links_;
  std::vector<std::int64_t> free_ps_;   // of each link
  std::vector<std::int32_t> carrying_;  // fair messages on each link
  std::vector<Flow> flows_;             // all fair messages under way
};

}  // namespace lockstep::simulator
