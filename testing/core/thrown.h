// For tests: the errors that are thrown, and what texts say.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "core/error.h"
#include "testing/core/refusal.h"

namespace lockstep::core {

// The Error that body() throws. The test fails if it throws none.
template <class Body>
Error thrown_by(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {Failure::internal, ""};
}

// The text of the Error that body() throws; empty if it throws none.
template <class Body>
std::string error_text(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Whether a text has a part; shows the text if not.
inline testing::AssertionResult has(std::string_view text, std::string_view part) {
  if (text.find(part) != std::string_view::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no '" << part << "' in: " << text;
}

}  // namespace lockstep::core
