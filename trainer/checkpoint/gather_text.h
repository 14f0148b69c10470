// Texts of all ranks, over a World: what save_checkpoint asks for.
#pragma once

#include <string>
#include <vector>

#include "collectives/transports/world.h"

namespace lockstep::trainer {

// [rank] -> the text that the rank gave. All ranks call it.
std::vector<std::string> gather_text(transports::World& world, const std::string& mine);

}  // namespace lockstep::trainer
