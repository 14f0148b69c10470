// The machine descriptions of machines/, embedded at build time.
#pragma once

#include <string_view>
#include <vector>

namespace lockstep::simulator {

struct EmbeddedMachine {
  std::string_view name;
  std::string_view json;
};
std::vector<EmbeddedMachine> embedded_machines();  // ordered by name

}  // namespace lockstep::simulator
