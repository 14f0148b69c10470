// The folder of a run's checkpoints:
//   step-00000010/           a complete checkpoint: it gets this name once all of it is on disk
//   step-00000020.partial/   one being written or removed, now or when its writer was killed
//   latest                   name of the last one written, and the CRC-32 of that name: "step-00000010 0123abcd"
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::trainer {

std::string checkpoint_name(std::int64_t step);  // "step-00000010"
std::string partial_folder(const std::string& folder, std::int64_t step);

// ---- for the one rank that does this
// Removes leftovers of writers that were killed, and makes an empty partial folder (and the folder itself if needed).
void begin_checkpoint(const std::string& folder, std::int64_t step);
// Turns the partial folder into the checkpoint, replacing an older one of the same step, and points `latest` to it. Of
// the others, all but the `keep` - 1 written last are removed. A kill at any moment leaves `latest` naming a complete
// one.
void publish_checkpoint(const std::string& folder, std::int64_t step, std::int32_t keep);
void abandon_checkpoint(const std::string& folder, std::int64_t step);

// ---- for all readers
// Returns the checkpoint at a path: itself, or the latest in the folder; nothing if the folder does not exist or has
// none. Throws an Error if `latest` is damaged or names a checkpoint that does not exist.
std::optional<std::string> find_checkpoint(const std::string& path);

}  // namespace lockstep::trainer
