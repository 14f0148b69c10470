// Graphs of captured work.
#pragma once

#include <functional>
#include <memory>

#include "core/device.h"

namespace lockstep::core {

// Calls work() once, which queues on the stream, and on others only after they waited for an event of it and so that it
// waits for an event of theirs at the end. Nothing of it runs now. It must wait for nothing. Memory that it needs
// beyond what the device has kept is taken from the device, which may wait for what runs there: where that must not be,
// run it once before, and synchronize. Throws what work() throws, and the capture is over then too.
std::unique_ptr<Graph> capture(Stream& stream, const std::function<void()>& work);

}  // namespace lockstep::core
