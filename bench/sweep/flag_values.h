// Values of command-line flags: text to numbers and lists, or one line that names flag, value and what is allowed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"

namespace lockstep::sweep {

// One flag as it was given: "-b,--minbytes" and "12Q".
struct FlagValue {
  std::string names;
  std::string text;

  // "-b,--minbytes 12Q: not a size; allowed: ..."
  core::Error refused(const std::string& what, const std::string& allowed) const;
  // "-b,--minbytes 12Q: <text of another error>"
  core::Error refused(const core::Error& error) const;

  std::int64_t integer(std::int64_t min, std::int64_t max) const;
  double number(double min, double max) const;       // min itself is not allowed
  double number_from(double min, double max) const;  // min is allowed
  bool zero_or_one() const;
  std::int64_t size_bytes() const;

  // The parts between commas, none of them empty.
  std::vector<FlagValue> list() const;
};

// The same as int; `max` has to fit.
int integer(const FlagValue& value, std::int64_t min, std::int64_t max);
std::vector<int> integer_list(const FlagValue& value, std::int64_t min, std::int64_t max);
std::vector<std::string> text_list(const FlagValue& value);

}  // namespace lockstep::sweep
