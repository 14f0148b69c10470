// Writes a checkpoint: a safetensors file for each rank that has pieces, then the manifest, then its name.
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

// How the ranks that write one checkpoint meet.
struct CheckpointRanks {
  std::int32_t rank = 0;
  // All ranks call it, each with a text, and each gets all texts, in the order of ranks. Nobody leaves before all have
  // come. Over a World: gather_text.
  std::function<std::vector<std::string>(const std::string&)> gather = [](const std::string& mine) {
    return std::vector<std::string>{mine};
  };
};

// All ranks call it, with the same folder (on a file system that they share), manifest and `keep`. Each gives all
// pieces that it has. What several have (replicas of data-parallel and tensor-parallel ranks, tied weights), the first
// of them writes; together they have every element of every tensor that any rank lists. A tensor may be listed twice.
// One writer a folder at a time.
//
// Returns on all ranks when the checkpoint is on the disk and has its name, or throws on all ranks; then what was there
// before is as it was. A kill at any moment leaves the last whole checkpoint, and `latest` naming it.
void save_checkpoint(const std::string& folder, const Manifest& manifest, std::span<const WholeTensor> tensors,
                     std::span<const Piece> pieces, const CheckpointRanks& ranks, std::int32_t keep);

// ---- Texts of all ranks, over a World: what save_checkpoint asks for.

// [rank] -> the text that the rank gave. All ranks call it.
std::vector<std::string> gather_text(transports::World& world, const std::string& mine);

}  // namespace lockstep::trainer
