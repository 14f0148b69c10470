// Steps and when their tasks ran as a trace in Chrome's format, which https://ui.perfetto.dev and chrome://tracing
// open: a process a rank, a thread a lane, an arrow from each send to its receive. The format: "Trace Event Format",
// Google 2016. Times become microseconds, rounded to nanoseconds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules/step/step.h"
#include "schedules/step/timeline.h"

namespace lockstep::schedules {

// A quantity over time on a rank: memory of a kind, say. It keeps a value until the next point.
struct TraceCounter {
  struct Point {
    std::int64_t time_ps = 0;
    double value = 0;
  };
  std::int32_t rank = 0;
  std::string name;  // with its unit: "activations (bytes)"
  std::vector<Point> points;
};

// One timeline of a trace. Several stand one above the other on one time axis, in the order in which they are given.
struct TracePart {
  std::string title;  // before the rank in the name of a process: "simulated", "emulated", "measured"
  const Step* step = nullptr;
  const StepTimeline* timeline = nullptr;
  std::span<const TraceCounter> counters = {};
};

// The whole file. A timeline has to have a span for each task of its step.
std::string to_trace(std::span<const TracePart> parts);
std::string to_trace(const Step& step, const StepTimeline& timeline, const std::string& title,
                     std::span<const TraceCounter> counters = {});

}  // namespace lockstep::schedules
