#include "bench/program/columns.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>

#include <fmt/format.h>

namespace lockstep::program {
namespace {

std::string aligned(const std::string& text, int width) {
  return width < 0 ? fmt::format("{:<{}}", text, -width) : fmt::format("{:>{}}", text, width);
}

std::string line_of(const std::vector<Title>& titles, std::string Title::*text) {
  std::string line = "#";
  for (std::size_t i = 0; i < titles.size(); ++i) {
    if (i > 0) line += " ";
    line += aligned(titles[i].*text, titles[i].width);
  }
  return line + "\n";
}

// Each group above the middle of its columns.
std::string groups_text(const std::vector<Title>& titles) {
  std::string line = "#";
  for (std::size_t first = 0; first < titles.size();) {
    std::size_t end = first;
    int width = -1;
    for (; end < titles.size() && titles[end].group == titles[first].group; ++end) {
      width += std::abs(titles[end].width) + 1;
    }
    line += (first > 0 ? " " : "") + fmt::format("{:^{}}", titles[first].group, width);
    first = end;
  }
  line.erase(line.find_last_not_of(' ') + 1);
  return line + "\n";
}

}  // namespace

std::string number_text(double value, const Shown& shown) {
  return fmt::format("{:.{}f}", shown.factor * value, shown.decimals);
}

std::string titles_text(const std::vector<Title>& titles) {
  const auto any = [&](std::string Title::*text) {
    return std::any_of(titles.begin(), titles.end(), [&](const Title& title) { return !(title.*text).empty(); });
  };
  return (any(&Title::group) ? groups_text(titles) : "") + line_of(titles, &Title::name) +
         (any(&Title::unit) ? line_of(titles, &Title::unit) : "");
}

std::string cells_text(const std::vector<Title>& titles, const std::vector<std::string>& cells) {
  std::string line;
  for (std::size_t i = 0; i < titles.size(); ++i) line += " " + aligned(cells[i], titles[i].width);
  return line;
}

}  // namespace lockstep::program
