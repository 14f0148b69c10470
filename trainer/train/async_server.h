// The server of --sync async: one rank that holds the weights and the optimizer and runs no part of a step.
#pragma once

#include <cstdint>
#include <vector>

#include "core/wait.h"
#include "trainer/sync/arrival_order.h"
#include "trainer/train/async_messages.h"
#include "trainer/train/options.h"

namespace lockstep::trainer {

class AsyncServer {
 public:
  // The arguments must outlive this.
  AsyncServer(const TrainOptions& options, RankModel& model);

  // Serves the replicas in this order, sends the final weights to all of them, and sends rank 0 a report after every
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

}  // namespace lockstep::trainer
