#include "trainer/train/async_server.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/sync/gradient_update.h"

namespace lockstep::trainer {

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
  PushReport told;
  mail_.receive(exchange.replica, writable_bytes_of(told));
  mail_.receive(exchange.replica, gradient_);
  unpack(model_, Packed::gradients, gradient_);
  update();
  report_.loss += told.loss / options_.layout.dp;
  report_.wait_seconds += told.wait_seconds / options_.layout.dp;
  most_sent_ = std::max({most_sent_, told.sent_bytes, mail_.sent_bytes()});
  if (updates_ % options_.layout.dp != 0) return;
  report_.sent_bytes = most_sent_;
  report_.seconds = core::us_between(std::exchange(reported_, core::Clock::now()), core::Clock::now()) * 1e-6;
  const ServerReport whole = std::exchange(report_, {});
  mail_.post(0, MailChannel::reports, {bytes_of(whole).begin(), bytes_of(whole).end()});
}

// The learning rate is that of the step number that the pushes so far make up, one per replica and step.
void AsyncServer::update() {
  const std::int64_t step = updates_++ / options_.layout.dp + 1;
  UpdateRules rules{.adamw = options_.adamw, .step = updates_, .most_norm = options_.most_norm};
  rules.adamw.rate = report_.rate = static_cast<float>(learning_rate(options_.rate, step));
  report_.norm = std::sqrt(square_of_gradients(model_));
  if (std::isfinite(report_.norm)) {
    update_from_gradients(model_, rules, report_.norm);
  } else {
    ++report_.skipped;
  }
}

}  // namespace lockstep::trainer
