#include "parallel/parameters/initial_values.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string_view>

#include "core/random.h"

namespace lockstep::parallel {
namespace {

std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = name.size();
  for (const char letter : name) hash = core::mix64(hash ^ static_cast<unsigned char>(letter));
  return hash;
}

constexpr double kTwoPi = 6.283185307179586;

struct NormalPair {
  double first;
  double second;
};

// Box and Muller 1958, "A note on the generation of random normal deviates". The radius takes a number in (0, 1].
NormalPair normals(std::uint64_t seed, std::uint64_t stream, std::uint64_t pair) {
  const std::uint64_t bits = core::hash64(seed, stream, pair);
  const double radius_number = static_cast<double>((bits >> 11) + 1) * 0x1p-53;
  const double angle = kTwoPi * (static_cast<double>(core::mix64(bits) >> 11) * 0x1p-53);
  const double radius = std::sqrt(-2 * std::log(radius_number));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

}  // namespace

namespace {

// A tile has the values of the parameter that it is part of.
void fill_tile(const workload::Parameter& parameter, std::uint64_t seed, std::int64_t begin, std::span<float> values) {
  const std::int64_t end = begin + static_cast<std::int64_t>(values.size());
  for_each_run(*parameter.tile_of, parameter.tile,
               [&](std::int64_t of_tile, std::int64_t of_whole, std::int64_t count) {
                 const std::int64_t first = std::max(of_tile, begin);
                 const std::int64_t last = std::min(of_tile + count, end);
                 if (first >= last) return;
                 fill_initial_values(
                     *parameter.tile_of, seed, of_whole + first - of_tile,
                     values.subspan(static_cast<std::size_t>(first - begin), static_cast<std::size_t>(last - first)));
               });
}

}  // namespace

// Elements 2k and 2k + 1 are a pair.
void fill_initial_values(const workload::Parameter& parameter, std::uint64_t seed, std::int64_t whole_begin,
                         std::span<float> values) {
  if (parameter.tile_of) return fill_tile(parameter, seed, whole_begin, values);
  if (parameter.deviation == 0) {
    std::fill(values.begin(), values.end(), parameter.fill);
    return;
  }
  const std::uint64_t stream = hash_of(parameter.drawn_as.empty() ? parameter.name : parameter.drawn_as);
  const double deviation = parameter.deviation;
  const auto begin = static_cast<std::uint64_t>(whole_begin);
  const std::uint64_t end = begin + values.size();
  for (std::uint64_t even = begin - begin % 2; even < end; even += 2) {
    const NormalPair pair = normals(seed, stream, even / 2);
    if (even >= begin) values[even - begin] = static_cast<float>(deviation * pair.first);
    if (even + 1 < end) values[even + 1 - begin] = static_cast<float>(deviation * pair.second);
  }
}

}  // namespace lockstep::parallel
