// Writes timelines of steps as a trace in Chrome's format, for https://ui.perfetto.dev and chrome://tracing: a process
// per rank, a thread per lane, an arrow from each send to its receive. The format: "Trace Event Format", Google 2016.
// Times become microseconds, rounded to nanoseconds.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "schedules/step/step.h"

namespace lockstep::schedules {

// A quantity over time on a rank, such as its memory of one kind. A value holds until the next point.
struct TraceCounter {
  struct Point {
    std::int64_t time_ps = 0;
    double value = 0;
  };
  std::int32_t rank = 0;
  std::string name;  // with its unit: "activations (bytes)"
  std::vector<Point> points;
};

// One timeline of a trace. Several are shown one above the other on a common time axis, in the given order.
struct TracePart {
  std::string title;  // first word of the process names: "simulated", "emulated", "measured"
  const Step* step = nullptr;
  const StepTimeline* timeline = nullptr;
  std::span<const TraceCounter> counters = {};
};

// The whole trace file. Each timeline has a span for every task of its step.
std::string to_trace(std::span<const TracePart> parts);
std::string to_trace(const Step& step, const StepTimeline& timeline, const std::string& title,
                     std::span<const TraceCounter> counters = {});

}  // namespace lockstep::schedules
