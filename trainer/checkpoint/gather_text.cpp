#include "trainer/checkpoint/gather_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace lockstep::trainer {

std::vector<std::string> gather_text(transports::World& world, const std::string& mine) {
  const std::vector<std::uint64_t> sizes = transports::all_gather_value(world, std::uint64_t{mine.size()});
  const std::size_t room = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = mine;
  padded.resize(room);
  std::string all(room * sizes.size(), '\0');
  world.all_gather(std::as_bytes(std::span(padded)), std::as_writable_bytes(std::span(all)));
  std::vector<std::string> texts;
  for (std::size_t r = 0; r < sizes.size(); ++r) texts.push_back(all.substr(r * room, sizes[r]));
  return texts;
}

}  // namespace lockstep::trainer
