// Predicted time of a plan in an alpha-beta-gamma model, event by event.
//
// Every rank has one full-duplex port: it sends one message at a time and receives one at a time. A message takes
// alpha + bytes * beta and occupies both ends' ports. Reductions and copies of a rank take turns on its core. Sends do
// not hold up their lane: buffers never run full.
//
// Lanes take turns at a port. The messages of a lane leave in order, and only the first of them stands in line; the
// next gets in line when it has arrived. A message goes when both its ports are free and no other for one of them,
// whose ports are free too, came into line earlier. At equal times the lane that has sent fewer messages goes first,
// then the lower lane, then the lower rank. So a receiver that is busy holds up the lane that sends to it, and no
// other.
#pragma once

#include <vector>

#include "collectives/plan/check.h"

namespace lockstep::plan {

struct CostModel {
  double alpha_us = 0;           // a message
  double beta_us_per_byte = 0;   // of a link direction
  double gamma_us_per_byte = 0;  // of a reduction of two operands
  double copy_us_per_byte = 0;   // of a copy step
};

// When a step does its work. A send: its message is on the wire. A recv: the moment when it has what it waits for.
// Others: on the core.
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
