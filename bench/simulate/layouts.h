// The layouts that a command line asks for.
#pragma once

#include <string>
#include <vector>

#include "workload/layout.h"

namespace lockstep::simulate {

// The base and each combination of what is swept: {"tp=2:4", "microbatch=1:2"} gives four, the last field fastest. In a
// swept text the last value of a field wins. Throws a usage Error that names the part, and what is allowed.
std::vector<workload::Layout> swept_layouts(const std::string& base, const std::vector<std::string>& sweep);

}  // namespace lockstep::simulate
