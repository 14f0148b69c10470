// simulator/validation/cases.json, built in.
#pragma once

#include <string_view>

namespace lockstep::simulate {

std::string_view validation_cases();

}  // namespace lockstep::simulate
