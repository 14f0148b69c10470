// A run with an asynchronous server and its replicas.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "collectives/transports/transport.h"
#include "core/wait.h"
#include "trainer/sync/sync_options.h"
#include "trainer/train/options.h"
#include "trainer/train/train.h"
#include "trainer/worker/rank_model.h"

namespace lockstep::trainer {

// Messages between an asynchronous server and its replicas.

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

// The server of --sync async: one rank that holds the weights and the optimizer and runs no part of a step.

class AsyncServer {
 public:
  // The arguments must outlive this.
  AsyncServer(const TrainOptions& options, RankModel& model);

  // Serves the replicas in this order, sends the final weights to all replicas, and sends rank 0 a report after every
  // num_replicas pushes.
  void run(const std::vector<Exchange>& order);

 private:
  void push(const Exchange& exchange);
  void update();

  const TrainOptions& options_;
  RankModel& model_;
  Mail mail_;
  Bytes gradient_;
  std::int64_t updates_ = 0;
  std::int64_t most_sent_ = 0;
  ServerReport report_;
  core::Clock::time_point reported_;
};

// --sync async: replicas that step independently, and a server on a rank of its own that applies their gradients in an
// order drawn in advance (trainer/sync/sync_options.h).

ReplicaRun replica_run(const TrainOptions& options);
std::vector<Exchange> order_of(const TrainOptions& options);

// Staleness of gradients when they are applied.
struct Missed {
  double mean = 0;
  std::int64_t most = 0;
};
Missed missed_in(const std::vector<Exchange>& order);

// train() for this mode. A report covers as many pushes as there are replicas; the observer gets all reports after the
// run.
TrainResult train_async(const TrainOptions& options, const Corpus& corpus, const TrainObserver& observer);

}  // namespace lockstep::trainer
