#include "core/capture.h"

#include "core/error.h"

namespace lockstep::core {
namespace {

void abandon_capture(Stream& stream) {
  try {
    stream.end_capture();
  } catch (const Error&) {
    // The work's own error says more.
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
