// Writes a checkpoint: a safetensors file for each rank that has pieces, then the manifest, then the folder's name.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "collectives/transports/world.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/pieces.h"

namespace lockstep::trainer {

// Communication among the ranks that write one checkpoint.
struct CheckpointRanks {
  std::int32_t rank = 0;
  // All ranks call it with one text each and get all texts, in rank order. No rank returns before all have called. Over
  // a World: gather_text.
  std::function<std::vector<std::string>(const std::string&)> gather = [](const std::string& mine) {
    return std::vector<std::string>{mine};
  };
};

// All ranks call it, with the same folder (on a shared file system), manifest and `keep`. Each passes all pieces that
// it has. Pieces that several ranks have (replicas of data-parallel and tensor-parallel ranks, tied weights) are
// written by the first of them; together they have every element of every tensor that any rank lists. A tensor may be
// listed twice. A folder has one writer at a time.
//
// Returns on all ranks once the checkpoint is on disk under its name, or throws on all ranks and leaves the earlier
// state unchanged. A kill at any moment leaves the last complete checkpoint and `latest` naming it.
void save_checkpoint(const std::string& folder, const Manifest& manifest, std::span<const WholeTensor> tensors,
                     std::span<const Piece> pieces, const CheckpointRanks& ranks, std::int32_t keep);

// ---- Texts of all ranks over a World, as save_checkpoint needs them.

// Returns [rank] -> that rank's text. All ranks call it.
std::vector<std::string> gather_text(transports::World& world, const std::string& mine);

}  // namespace lockstep::trainer
