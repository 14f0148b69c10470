#include "core/device.h"

#include "core/error.h"

namespace lockstep::core {
namespace {

void abandon_capture(Stream& stream) {
  try {
    stream.end_capture();
  } catch (const Error&) {
    // The error that work() threw says more than the one of the capture that failed because of it.
  }
}

}  // namespace

std::unique_ptr<Graph> capture(Stream& stream, const std::function<void()>& work) {
  stream.begin_capture();
  try {
    work();
  } catch (...) {
    abandon_capture(stream);
    throw;
  }
  return stream.end_capture();
}

}  // namespace lockstep::core
