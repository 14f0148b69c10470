// Graphs of captured work.
#pragma once

#include <functional>
#include <memory>

#include "core/device.h"

namespace lockstep::core {

// Records what work() queues on the stream as a graph: calls work() once and runs none of it. work() may queue on other
// streams only after they wait for an event of this stream, and this stream must wait for an event of theirs at the
// end. work() must not wait on the host. Memory that it needs beyond what the device has kept is taken from the device,
// which may wait for running work: to avoid that, run work() once before and synchronize. Throws what work() throws;
// the capture has then ended, too.
std::unique_ptr<Graph> capture(Stream& stream, const std::function<void()>& work);

}  // namespace lockstep::core
