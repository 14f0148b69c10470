// Opens NCCL at run time, at first use: a program that was built with it also runs on machines without it, and says so
// in one line.
#pragma once

#include "core/open_library.h"

namespace lockstep::libraries {

// Throws Error(nccl) with the reasons if NCCL cannot be opened or is older than 2.28; every call does.
const core::OpenedLibrary& nccl_opened();

}  // namespace lockstep::libraries
