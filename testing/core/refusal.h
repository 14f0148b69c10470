// For tests: what is refused.
#pragma once

#include <string>

#include "core/error.h"

namespace lockstep::core {

// The text, one line, of the Error of that failure that body() throws; empty if it throws nothing. All other exceptions
// pass.
template <class Body>
std::string refusal_of(const Body& body, Failure failure = Failure::usage) {
  std::string text;
  try {
    body();
  } catch (const Error& error) {
    if (error.failure() != failure) throw;
    text = error.what();
  }
  LOCKSTEP_CHECK(text.find('\n') == std::string::npos, "a refusal is one line");
  return text;
}

}  // namespace lockstep::core
