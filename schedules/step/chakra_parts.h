// What the reader of Chakra traces (chakra_read.cpp) has in files of its own: errors, and communicators. For these
// sources only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "schedules/step/traces.h"

namespace lockstep::schedules {

// "step.1.et, node 7 (all_reduce): TEXT"
core::Error refused_node(const std::string& prefix, std::size_t rank, const ChakraNode& node, const std::string& text);
// Text of a file as part of a line: cut, and without control characters.
std::string shown_text(std::string text, std::size_t most);

// Attributes that name a collective's group: today's, and those of older generators.
inline constexpr std::array<std::string_view, 3> kGroupAttributes{"pg_name", "comm_group", "communicator_id"};

// The groups of ranks that a trace describes: in its groups file, in PyTorch's metadata nodes, by dimensions.
class ChakraCommunicators {
 public:
  ChakraCommunicators(const ChakraTrace& trace, const std::string& prefix);

  // The name under which a collective's group is kept; empty: all ranks, as ASTRA-sim takes no name, and "0" unless it
  // is described. The first ASTRA-sim's traces name no group: their collectives are of the group that has the rank
  // (`is_guessed`).
  std::string key_of(std::size_t rank, const ChakraNode& node, bool& is_guessed);
  const std::vector<std::int32_t>& ranks_of(const std::string& key) const {
    return key.empty() ? all_ : groups_.at(key);
  }

 private:
  void add_process_groups(std::size_t rank);
  void check_group(const std::string& name, const std::vector<std::int32_t>& ranks) const;
  std::optional<std::string> group_that_has(std::size_t rank, const ChakraNode& node) const;
  std::string key_of_dimensions(std::size_t rank, const ChakraNode& node);

  const ChakraTrace& trace_;
  const std::string& prefix_;
  bool names_groups_ = false;  // a node of the trace does
  std::vector<std::int32_t> all_;
  ChakraGroups groups_;
};

}  // namespace lockstep::schedules
