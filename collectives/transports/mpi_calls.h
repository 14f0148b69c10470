// What our sources on MPI share: error codes into Errors. Included by sources only, as it shows mpi.h.
#pragma once

#include <mpi.h>

#include <string>

#include "core/error.h"

namespace lockstep::transports {

inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return text;
}

// `what` names the call, and where it applies the rank, the peer and the bytes; it is only called when there is an
// error.
template <typename What>
void check_mpi(int code, const What& what) {
  if (code == MPI_SUCCESS) return;
  throw core::Error(core::Failure::rank_lost, what() + ": " + mpi_error_text(code));
}

}  // namespace lockstep::transports
