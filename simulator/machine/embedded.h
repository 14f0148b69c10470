// The descriptions of machines/, built in.
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
