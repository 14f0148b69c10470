// The part of a checkpoint from a parameter store: master weights and both moments of AdamW, as tensors "master.NAME",
// "first_moment.NAME" and "second_moment.NAME".
#pragma once

#include <vector>

#include "parallel/parameters/store.h"
#include "trainer/checkpoint/pieces.h"

namespace lockstep::trainer {

// Tensors and the pieces of them that a rank has, for save_checkpoint, Checkpoint::read and read_hugging_face. They are
// valid as the stores' runs are.
struct Held {
  std::vector<WholeTensor> tensors;
  std::vector<Piece> pieces;
};

// Adds those of a store: of a rank with several stages, all of its stores go into one Held.
void add_state(parallel::ParameterStore& store, Held& to);
// Master weights alone, by the parameter's own name.
void add_masters(parallel::ParameterStore& store, Held& to);

// After the pieces were read into: the device and the weights as kernels read them follow. (With ZeRO 1 and 2 a gather
// has to follow this.)
void state_was_read(parallel::ParameterStore& store);
void masters_were_read(parallel::ParameterStore& store);

}  // namespace lockstep::trainer
