// Messages between an asynchronous server and its replicas.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "collectives/transports/transport.h"
#include "trainer/worker/rank_model.h"

namespace lockstep::trainer {

using Bytes = std::vector<std::byte>;

// Channels between two ranks that carry nothing else while replicas train.
enum class MailChannel : std::uint8_t { weights, reports };

// Messages of one rank. Every wait has the run's deadline.
class Mail {
 public:
  Mail(transports::Transport& messages, std::chrono::milliseconds timeout) : messages_(messages), timeout_(timeout) {}

  void send(int peer, std::span<const std::byte> bytes);
  void receive(int peer, std::span<std::byte> bytes);
  // Returns before the message is received; `bytes` are kept until it is.
  void post(int peer, MailChannel channel, Bytes bytes);
  void wait_for_posted();
  void wait_for(transports::Request request, int peer);

  transports::Transport& messages() { return messages_; }
  std::int64_t sent_bytes() const { return sent_bytes_; }

 private:
  struct Posted {
    int peer = 0;
    Bytes bytes;
    transports::Request request;
  };

  transports::Transport& messages_;
  const std::chrono::milliseconds timeout_;
  std::deque<Posted> posted_;
  std::int64_t sent_bytes_ = 0;
};

// Numbers that a replica sends with its gradient.
struct PushReport {
  double loss = 0;          // nats per token
  double wait_seconds = 0;  // time that the replica waited for its weights
  std::int64_t sent_bytes = 0;
};

// Summary of as many pushes as there are replicas.
struct ServerReport {
  double loss = 0;
  double norm = 0;     // norm of the last gradient
  double seconds = 0;  // since the previous report
  double wait_seconds = 0;
  float rate = 0;
  std::int32_t skipped = 0;  // updates skipped because of gradients that are not finite
  std::int64_t sent_bytes = 0;
};

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T>(&value, 1));
}
template <class T>
std::span<std::byte> writable_bytes_of(T& value) {
  return std::as_writable_bytes(std::span<T>(&value, 1));
}

// All buckets of a rank packed into one message. CPU only.
enum class Packed : std::uint8_t { gradients, masters };
Bytes packed(RankModel& model, Packed what);
void unpack(RankModel& model, Packed what, std::span<const std::byte> all);

}  // namespace lockstep::trainer
