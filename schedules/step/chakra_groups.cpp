#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "core/record_json.h"
#include "schedules/step/chakra_parts.h"

namespace lockstep::schedules {
namespace {

std::optional<std::string> group_name_of(const ChakraNode& node) {
  for (const std::string_view attribute : kGroupAttributes) {
    const std::string name(attribute);
    if (const auto text = node.texts.find(name); text != node.texts.end() && !text->second.empty()) return text->second;
    if (const auto number = node.numbers.find(name); number != node.numbers.end())
      return std::to_string(number->second);
  }
  return std::nullopt;
}

nlohmann::json process_groups_of(const std::string& text,
                                 const std::function<core::Error(const std::string&)>& refused) {
  try {
    return core::parse_json(text, "process groups");
  } catch (const core::Error& error) {
    throw refused(error.what() + std::string("; allowed: PyTorch's process_group:init"));
  }
}

bool has_rank(const std::vector<std::int32_t>& ranks, std::size_t rank) {
  return std::find(ranks.begin(), ranks.end(), static_cast<std::int32_t>(rank)) != ranks.end();
}

}  // namespace

std::string shown_text(std::string text, std::size_t most) {
  if (text.size() > most) text = text.substr(0, most) + "...";
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

core::Error refused_node(const std::string& prefix, std::size_t rank, const ChakraNode& node, const std::string& text) {
  return core::usage_error(
      fmt::format("{}, node {} ({}): {}", chakra_file_name(prefix, rank), node.id, shown_text(node.name, 60), text));
}

ChakraCommunicators::ChakraCommunicators(const ChakraTrace& trace, const std::string& prefix)
    : trace_(trace), prefix_(prefix), all_(trace.of_rank.size()), groups_(trace.groups) {
  std::iota(all_.begin(), all_.end(), 0);
  for (std::size_t rank = 0; rank < trace.of_rank.size(); ++rank) {
    add_process_groups(rank);
    for (const ChakraNode& node : trace.of_rank[rank]) names_groups_ |= group_name_of(node).has_value();
  }
  for (const auto& [name, ranks] : groups_) check_group(name, ranks);
}

// PyTorch's profiler describes its process groups in a metadata node: a list with one text, which is JSON.
void ChakraCommunicators::add_process_groups(std::size_t rank) {
  for (const ChakraNode& node : trace_.of_rank[rank]) {
    const std::size_t begin = node.input_values.find("[{");
    const std::size_t end = node.input_values.rfind("}]");
    if (node.type != ChakraType::metadata || begin == std::string::npos || end == std::string::npos || end < begin)
      continue;
    const nlohmann::json json =
        process_groups_of(node.input_values.substr(begin, end + 2 - begin),
                          [&](const std::string& why) { return refused_node(prefix_, rank, node, why); });
    for (const auto& one : json) {
      if (!one.is_object() || !one.contains("pg_name") || !one.contains("ranks") || !one["pg_name"].is_string())
        continue;
      nlohmann::json ranks = one["ranks"];
      if (ranks.empty()) ranks = all_;  // as PyTorch writes all ranks
      if (ranks.is_object()) {          // older versions of PyTorch: each rank with its index in the group
        ranks = nlohmann::json::array();
        for (const auto& entry : one["ranks"].items())
          ranks.push_back(nlohmann::json::parse(entry.key(), nullptr, false));
      }
      const std::string text = nlohmann::json{{one["pg_name"].get<std::string>(), ranks}}.dump(
          -1, ' ', false, nlohmann::json::error_handler_t::replace);
      for (const auto& [name, members] : parse_chakra_groups(text, chakra_file_name(prefix_, rank)))
        groups_[name] = members;
    }
  }
}

void ChakraCommunicators::check_group(const std::string& name, const std::vector<std::int32_t>& ranks) const {
  const std::set<std::int32_t> different(ranks.begin(), ranks.end());
  if (different.size() != ranks.size()) throw core::usage_error(prefix_ + ": group " + name + " has a rank twice");
  if (*different.rbegin() < static_cast<std::int32_t>(trace_.of_rank.size())) return;
  throw core::usage_error(fmt::format("{}: group {} has rank {}, and there are {} files; allowed: a file for each rank",
                                      prefix_, name, *different.rbegin(), trace_.of_rank.size()));
}

std::string ChakraCommunicators::key_of(std::size_t rank, const ChakraNode& node, bool& is_guessed) {
  if (const auto name = group_name_of(node)) {
    if (groups_.contains(*name)) return *name;
    if (*name == "0") return "";
    throw refused_node(
        prefix_, rank, node,
        fmt::format("{} {} is described nowhere; allowed: a group of the groups file (--groups)", kGroupAttributes[0],
                    nlohmann::json(*name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)));
  }
  const std::optional<std::string> mine = names_groups_ ? std::nullopt : group_that_has(rank, node);
  is_guessed = mine.has_value();
  if (mine) return *mine;
  const auto& spans = node.involved_dim;
  return std::find(spans.begin(), spans.end(), false) == spans.end() ? "" : key_of_dimensions(rank, node);
}

// Of the groups file.
std::optional<std::string> ChakraCommunicators::group_that_has(std::size_t rank, const ChakraNode& node) const {
  std::optional<std::string> mine;
  for (const auto& [name, ranks] : trace_.groups) {
    if (!has_rank(ranks, rank)) continue;
    if (mine) {
      throw refused_node(prefix_, rank, node,
                         "names no group, and its rank is in " + *mine + " and " + name +
                             " of the groups file; allowed: with pg_name, or each rank in one group");
    }
    mine = name;
  }
  return mine;
}

// Adds the group of ranks whose places differ in the selected dimensions only.
std::string ChakraCommunicators::key_of_dimensions(std::size_t rank, const ChakraNode& node) {
  const auto& sizes = trace_.dimensions;
  const auto& spans = node.involved_dim;
  const auto all = std::accumulate(sizes.begin(), sizes.end(), std::size_t{1}, std::multiplies<std::size_t>());
  if (sizes.size() != spans.size() || all != trace_.of_rank.size()) {
    throw refused_node(prefix_, rank, node,
                       fmt::format("involved_dim selects some of {} dimensions; allowed: with --dimensions, {} sizes "
                                   "whose product is {}, the number of files",
                                   spans.size(), spans.size(), trace_.of_rank.size()));
  }
  std::vector<std::int32_t> ranks;
  for (std::size_t r = 0; r < all; ++r) {
    bool is_member = true;
    std::size_t stride = 1;
    for (std::size_t d = 0; d < sizes.size(); stride *= static_cast<std::size_t>(sizes[d++])) {
      const auto size = static_cast<std::size_t>(sizes[d]);
      is_member &= spans[d] || r / stride % size == rank / stride % size;
    }
    if (is_member) ranks.push_back(static_cast<std::int32_t>(r));
  }
  std::string key = fmt::format("ranks {}", fmt::join(ranks, ","));
  groups_[key] = std::move(ranks);
  return key;
}

}  // namespace lockstep::schedules
