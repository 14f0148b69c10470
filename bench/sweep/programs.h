// The *_perf programs and the collective that each of them times.
#pragma once

#include <string_view>

#include "collectives/collective.h"

namespace lockstep::sweep {

collectives::Kind kind_of_program(std::string_view program);  // "all_reduce_perf"; throws a usage Error
std::string_view program_of_kind(collectives::Kind kind);

}  // namespace lockstep::sweep
