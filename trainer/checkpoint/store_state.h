// The part of a checkpoint that comes from a parameter store: master weights and both moments of AdamW, as tensors
// "master.NAME", "first_moment.NAME" and "second_moment.NAME".
#pragma once

#include <vector>

#include "parallel/parameters/store.h"
#include "trainer/checkpoint/pieces.h"

namespace lockstep::trainer {

// Tensors and the pieces of them that a rank has, for save_checkpoint, Checkpoint::read and read_hugging_face. Valid as
// long as the stores' runs are.
struct Held {
  std::vector<WholeTensor> tensors;
  std::vector<Piece> pieces;
};

// Adds the state of a store. If a rank has several stages, all of its stores go into one Held.
void add_state(parallel::ParameterStore& store, Held& to);
// Adds only the master weights, under the parameter's own name.
void add_masters(parallel::ParameterStore& store, Held& to);

// Call it after the pieces were read into: updates the device's copies and the weights that kernels read. (With ZeRO 1
// and 2 a gather has to follow.)
void state_was_read(parallel::ParameterStore& store);
void masters_were_read(parallel::ParameterStore& store);

}  // namespace lockstep::trainer
