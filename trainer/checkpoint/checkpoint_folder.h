// The folder of a run's checkpoints:
//   step-00000010/           a whole checkpoint: it got its name when all of it was on the disk
//   step-00000020.partial/   one that is being written or removed, or that was when its writer was killed
//   latest                   which of them was written last, and the CRC-32 of that name: "step-00000010 0123abcd"
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::trainer {

std::string checkpoint_name(std::int64_t step);  // "step-00000010"
std::string partial_folder(const std::string& folder, std::int64_t step);

// ---- for the one rank that does this
// Removes what writers that were killed have left, and makes an empty partial folder (and the folder, if it is not
// there).
void begin_checkpoint(const std::string& folder, std::int64_t step);
// The partial folder becomes the checkpoint, in place of an older one of the same step; `latest` names it; of the
// others all but the `keep` - 1 that were written last are removed. A kill at any moment leaves `latest` naming a whole
// one.
void publish_checkpoint(const std::string& folder, std::int64_t step, std::int32_t keep);
void abandon_checkpoint(const std::string& folder, std::int64_t step);

// ---- for all who read
// The checkpoint that a path means: itself, or the latest of the folder. Nothing if the folder is not there or has
// none; an Error if `latest` is damaged or names one that is not there.
std::optional<std::string> find_checkpoint(const std::string& path);

}  // namespace lockstep::trainer
