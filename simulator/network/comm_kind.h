// Maps a step's collectives to collectives::Kind.
#pragma once

#include "collectives/collective.h"
#include "schedules/step/step.h"

namespace lockstep::simulator {

inline collectives::Kind kind_of(schedules::Comm comm) {
  switch (comm) {
    case schedules::Comm::all_gather:
      return collectives::Kind::all_gather;
    case schedules::Comm::reduce_scatter:
      return collectives::Kind::reduce_scatter;
    case schedules::Comm::all_to_all:
      return collectives::Kind::all_to_all;
    case schedules::Comm::broadcast:
      return collectives::Kind::broadcast;
    case schedules::Comm::reduce:
      return collectives::Kind::reduce;
    case schedules::Comm::shift:
      return collectives::Kind::send_recv;
    default:
      return collectives::Kind::all_reduce;
  }
}

}  // namespace lockstep::simulator
