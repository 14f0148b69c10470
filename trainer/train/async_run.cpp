#include "trainer/train/async_run.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/wait.h"
#include "trainer/sync/synchronizer.h"
#include "trainer/train/rank_steps.h"

namespace lockstep::trainer {
namespace {

constexpr int kWeights = static_cast<int>(MailChannel::weights);

template <class Visit>
void for_each_bucket(RankModel& model, Packed what, const Visit& visit) {
  for (RankStage& stage : model.stages()) {
    for (std::int32_t b = 0; b < stage.store->num_buckets(); ++b) {
      const kernels::InOut view = what == Packed::masters ? stage.store->own_masters(b) : stage.store->own_gradient(b);
      visit(std::span<std::byte>(static_cast<std::byte*>(view.data), kernels::size_bytes(view.dtype, view.elems)));
    }
  }
}

}  // namespace

void Mail::send(int peer, std::span<const std::byte> bytes) {
  sent_bytes_ += static_cast<std::int64_t>(bytes.size());
  wait_for(messages_.send(peer, kWeights, bytes), peer);
}

void Mail::receive(int peer, std::span<std::byte> bytes) {
  wait_for(messages_.recv(peer, kWeights, bytes), peer);
}

void Mail::post(int peer, MailChannel channel, Bytes bytes) {
  sent_bytes_ += static_cast<std::int64_t>(bytes.size());
  Posted& posted = posted_.emplace_back(Posted{peer, std::move(bytes), {}});
  posted.request = messages_.send(peer, static_cast<int>(channel), posted.bytes);
}

void Mail::wait_for_posted() {
  for (const Posted& posted : std::exchange(posted_, {})) wait_for(posted.request, posted.peer);
}

void Mail::wait_for(transports::Request request, int peer) {
  const core::Deadline deadline = core::Deadline::after(timeout_);
  while (!messages_.done(request)) {
    std::erase_if(posted_, [&](const Posted& posted) { return messages_.done(posted.request); });
    messages_.idle();
    if (!deadline.passed()) continue;
    throw core::Error(core::Failure::timeout,
                      "rank " + std::to_string(messages_.rank()) + " waits for a message with rank " +
                          std::to_string(peer) +
                          " (next in the asynchronous server's order) for longer than --timeout");
  }
}

Bytes packed(RankModel& model, Packed what) {
  Bytes all;
  for_each_bucket(model, what, [&](std::span<std::byte> bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); });
  return all;
}

void unpack(RankModel& model, Packed what, std::span<const std::byte> all) {
  for_each_bucket(model, what, [&](std::span<std::byte> bytes) {
    std::copy_n(all.begin(), bytes.size(), bytes.begin());
    all = all.subspan(bytes.size());
  });
}

AsyncServer::AsyncServer(const TrainOptions& options, RankModel& model)
    : options_(options),
      model_(model),
      mail_(model.mesh().messages, options.timeout),
      gradient_(packed(model, Packed::gradients)) {}

void AsyncServer::run(const std::vector<Exchange>& order) {
  reported_ = core::Clock::now();
  for (const Exchange& exchange : order) {
    if (exchange.way == Exchange::Way::pull) {
      mail_.post(exchange.replica, MailChannel::weights, packed(model_, Packed::masters));
    } else {
      push(exchange);
    }
  }
  for (int replica = 0; replica < options_.layout.dp; ++replica) {
    mail_.post(replica, MailChannel::weights, packed(model_, Packed::masters));
  }
  mail_.wait_for_posted();
}

void AsyncServer::push(const Exchange& exchange) {
  PushReport pushed;
  mail_.receive(exchange.replica, writable_bytes_of(pushed));
  mail_.receive(exchange.replica, gradient_);
  unpack(model_, Packed::gradients, gradient_);
  update();
  report_.loss += pushed.loss / options_.layout.dp;
  report_.wait_seconds += pushed.wait_seconds / options_.layout.dp;
  most_sent_ = std::max({most_sent_, pushed.sent_bytes, mail_.sent_bytes()});
  if (updates_ % options_.layout.dp != 0) return;
  report_.sent_bytes = most_sent_;
  report_.seconds = core::us_between(std::exchange(reported_, core::Clock::now()), core::Clock::now()) * 1e-6;
  const ServerReport whole = std::exchange(report_, {});
  mail_.post(0, MailChannel::reports, {bytes_of(whole).begin(), bytes_of(whole).end()});
}

// The learning rate belongs to the step number that the pushes so far make up, one per replica and step.
void AsyncServer::update() {
  const std::int64_t step = updates_++ / options_.layout.dp + 1;
  UpdateRules rules{.optimizer = options_.optimizer, .step = updates_, .most_norm = options_.most_norm};
  rules.optimizer.rate = report_.rate = static_cast<float>(learning_rate(options_.rate, step));
  report_.norm = std::sqrt(square_of_gradients(model_));
  if (std::isfinite(report_.norm)) {
    update_from_gradients(model_, rules, report_.norm);
  } else {
    ++report_.skipped;
  }
}

namespace {

// Replica r's side of the protocol; it runs on rank r.
class AsyncReplica {
 public:
  AsyncReplica(const TrainOptions& options, RankTrainer& trainer)
      : trainer_(trainer), mail_(trainer.model().mesh().messages, options.timeout), server_(options.layout.ranks()) {}

  // Ends with the final weights, the same on all replicas. Calls `pushed` after each push.
  void run(const std::vector<Exchange>& order, const std::function<void()>& pushed) {
    for (const Exchange& exchange : order) {
      if (exchange.replica != trainer_.model().rank()) continue;
      if (exchange.way == Exchange::Way::pull) {
        pull();
      } else {
        push(exchange.step);
        pushed();
      }
    }
    pull();
  }

 private:
  void pull() {
    const auto start = core::Clock::now();
    weights_.resize(packed(trainer_.model(), Packed::masters).size());
    mail_.receive(server_, weights_);
    unpack(trainer_.model(), Packed::masters, weights_);
    for (RankStage& stage : trainer_.model().stages()) stage.store->masters_changed();
    wait_seconds_ = core::us_between(start, core::Clock::now()) * 1e-6;
  }
  void push(std::int64_t step) {
    PushReport report{.loss = trainer_.local_gradients(step), .wait_seconds = std::exchange(wait_seconds_, 0)};
    const Bytes gradient = packed(trainer_.model(), Packed::gradients);
    report.sent_bytes = mail_.sent_bytes() + static_cast<std::int64_t>(gradient.size());
    mail_.send(server_, bytes_of(report));
    mail_.send(server_, gradient);
  }

  RankTrainer& trainer_;
  Mail mail_;
  Bytes weights_;
  const int server_;
  double wait_seconds_ = 0;
};

// The server's reports as rank 0 receives them.
class Reports {
 public:
  Reports(const TrainOptions& options, RankTrainer& trainer)
      : options_(options), trainer_(trainer), mail_(trainer.model().mesh().messages, options.timeout) {
    expect();
  }

  // Returns the reports that have arrived since the last call; with `all`, waits for the rest.
  std::vector<StepReport> next(bool all) {
    std::vector<StepReport> steps;
    while (told_ < options_.steps) {
      if (all) {
        mail_.wait_for(request_, options_.layout.ranks());
      } else if (!mail_.messages().done(request_)) {
        break;
      }
      steps.push_back(step_report());
      if (told_ < options_.steps) expect();
    }
    if (!steps.empty()) steps.back().steps_reported = static_cast<std::int64_t>(steps.size());
    return steps;
  }

 private:
  void expect() {
    request_ = mail_.messages().recv(options_.layout.ranks(), static_cast<int>(MailChannel::reports),
                                     writable_bytes_of(report_));
  }
  StepReport step_report() {
    StepReport step{.step = ++told_, .loss = report_.loss, .norm = report_.norm, .skipped = report_.skipped > 0};
    step.rate = report_.rate;
    step.seconds = report_.seconds;
    step.sync_seconds = report_.wait_seconds;
    step.sent_bytes = report_.sent_bytes;
    step.peak_bytes = trainer_.held_bytes().at_peak();
    step.most_bytes = parallel::total_of(trainer_.model().memory().at_peak());
    step.steps_reported = 0;
    return step;
  }

  const TrainOptions& options_;
  RankTrainer& trainer_;
  Mail mail_;
  ServerReport report_;
  transports::Request request_;
  std::int64_t told_ = 0;
};

// Keeps every replica's first step from starting before the server's clock.
void begin_together(backends::MeshRank& mesh) {
  transports::all_gather_value(mesh.messages, double{0});
}

void serve(const TrainOptions& options, const TrainStep& made, backends::MeshRank& mesh, const ChannelMap& channels,
           const std::vector<Exchange>& order) {
  RankSteps steps(options, made, mesh, channels);
  begin_together(mesh);
  AsyncServer(options, steps.model()).run(order);
  // Takes part, as all replicas do, in gathering the timeline and the validation loss.
  gather_timeline(mesh, transports::now_ns(), {});
  transports::all_gather_value(mesh.messages, double{0});
}

void replicate(const TrainOptions& options, const TrainStep& made, RankTrainer& trainer,
               const std::vector<Exchange>& order, TrainResult& result, const TrainObserver& observer) {
  const bool is_first = trainer.model().rank() == 0;
  std::unique_ptr<Reports> reports;
  if (is_first) reports = std::make_unique<Reports>(options, trainer);
  if (is_first) observer.begin(made);
  const auto report = [&](bool all, const schedules::StepTimeline& timeline) {
    if (!is_first) return;
    for (const StepReport& step : reports->next(all)) {
      result.steps.push_back(step);
      observer.step(step, step.step == options.steps ? timeline : schedules::StepTimeline{});
    }
  };
  const std::int64_t own_pushes = std::count_if(order.begin(), order.end(), [&](const Exchange& exchange) {
    return exchange.replica == 0 && exchange.way == Exchange::Way::push;
  });
  std::int64_t pushes = 0;
  begin_together(trainer.model().mesh());
  AsyncReplica(options, trainer).run(order, [&] {
    if (++pushes < own_pushes) report(false, {});  // the last report is made together with the timeline
  });
  schedules::StepTimeline timeline = trainer.gather_timeline();
  timeline.resize(made.step.of_rank.size());  // the server has no tasks
  report(true, timeline);
  const double loss = trainer.validate();
  if (!is_first) return;
  result.validation_loss = loss;
  observer.validation(options.steps, loss);
}

}  // namespace

ReplicaRun replica_run(const TrainOptions& options) {
  return {options.sync, options.straggler, options.layout.dp, options.steps, options.seed};
}

std::vector<Exchange> order_of(const TrainOptions& options) {
  return order_of(replica_run(options));
}

Missed missed_in(const std::vector<Exchange>& order) {
  Missed missed;
  double pushes = 0;
  for (const Exchange& exchange : order) {
    if (exchange.way != Exchange::Way::push) continue;
    missed.mean += static_cast<double>(exchange.missed);
    missed.most = std::max(missed.most, exchange.missed);
    ++pushes;
  }
  missed.mean /= pushes;
  return missed;
}

TrainResult train_async(const TrainOptions& options, const Corpus& corpus, const TrainObserver& observer) {
  const TrainStep made = step_of(options);
  const std::vector<Exchange> order = order_of(options);
  const std::array<const schedules::Step*, 2> steps{&made.step, &made.forward};
  TrainResult result;
  run_ranks(options, made, steps, [&](backends::MeshRank& rank, const ChannelMap& channels) {
    if (rank.messages.rank() == options.layout.ranks()) return serve(options, made, rank, channels, order);
    RankTrainer trainer(options, made, corpus, rank, channels);
    replicate(options, made, trainer, order, result, observer);
  });
  return result;
}

}  // namespace lockstep::trainer
