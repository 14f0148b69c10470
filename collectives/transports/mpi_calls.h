// Helpers that our MPI sources share: conversion of error codes into Errors, and the Transport on a communicator.
// Included by sources only, as it includes mpi.h.
#pragma once

#include <mpi.h>

#include <chrono>
#include <memory>
#include <string>

#include "collectives/transports/mpi_transport.h"
#include "core/error.h"

namespace lockstep::transports {

inline std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return text;
}

// `what` returns the name of the call and, where they apply, the rank, the peer and the bytes; it is only called if
// there is an error.
template <typename What>
void check_mpi(int code, const What& what) {
  if (code == MPI_SUCCESS) return;
  throw core::Error(core::Failure::rank_lost, what() + ": " + mpi_error_text(code));
}

// A communicator that is freed with its last owner, except while an exception is unwinding: freeing waits for other
// ranks, which may never come to it.
using SharedComm = std::shared_ptr<MPI_Comm>;
SharedComm shared_comm(MPI_Comm comm);

// The communicator carries only messages of its transports. With `oversubscribed` idle() yields the core.
std::unique_ptr<Transport> make_mpi_transport(SharedComm comm, bool oversubscribed, std::chrono::nanoseconds timeout,
                                              const MpiTransportOptions& options);

}  // namespace lockstep::transports
