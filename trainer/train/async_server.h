// The server of --sync async: one rank with the weights and the optimizer, and no part of a step.
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
  // The arguments outlive this.
  AsyncServer(const TrainOptions& options, RankModel& model);

  // Meets the replicas in this order, gives all of them the weights at the end, and rank 0 a report of every so many
  // pushes as there are replicas.
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
