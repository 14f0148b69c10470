// Predicted time of a plan in an alpha-beta-gamma model, event by event.
//
// Every rank has one full-duplex port: it sends one message at a time and receives one at a time. A message takes alpha
// + bytes * beta and occupies the ports of both ends. A rank's reductions and copies share its core, one at a time.
// Sends do not block their lane: buffers never fill up.
//
// Lanes share a port. The messages of a lane leave in order, and only the first of them is in line; the next gets in
// line when it has arrived. A message starts when both its ports are free and no message that could use one of them,
// with its own ports free too, got in line earlier. At equal times the lane that has sent fewer messages goes first,
// then the lower lane, then the lower rank. So a busy receiver delays the lane that sends to it, and no other.
#pragma once

#include <vector>

#include "collectives/plan/check.h"

namespace lockstep::plan {

struct CostModel {
  double alpha_us = 0;           // per message
  double beta_us_per_byte = 0;   // per link direction
  double gamma_us_per_byte = 0;  // reduction of two operands
  double copy_us_per_byte = 0;   // copy step
};

// Time of a step's work. Send: its message is on the wire. Recv: the moment at which its message is complete. Others:
// on the core.
struct StepSpan {
  double begin_us = 0;
  double end_us = 0;
};

struct Prediction {
  double time_us = 0;
  std::vector<StepSpan> spans;  // by step id of contents.ids()
};

Prediction predict(const Plan& plan, const Contents& contents, const collectives::Operation& operation,
                   const CostModel& model);

}  // namespace lockstep::plan
