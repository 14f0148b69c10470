// simulator/validation/cases.json, embedded at build time.
#pragma once

#include <string_view>

namespace lockstep::simulate {

std::string_view validation_cases();

}  // namespace lockstep::simulate
