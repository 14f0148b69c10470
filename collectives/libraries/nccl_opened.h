// NCCL is opened at run time, when something first asks for it: a program that was built with it also runs where it is
// not installed, and says so in one line.
#pragma once

#include "core/open_library.h"

namespace lockstep::libraries {

// Throws Error(nccl) with the reasons where it cannot be opened, or is older than 2.28, each time again.
const core::OpenedLibrary& nccl_opened();

}  // namespace lockstep::libraries
