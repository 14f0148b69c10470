#include "testing/ptx/requests.h"

#include <algorithm>
#include <array>
#include <vector>

namespace lockstep::ptx {
namespace {

void count_global(Counts& counts, const Warp::Place* places, std::uint32_t lanes, std::size_t bytes, bool writes) {
  std::array<std::uintptr_t, kLanes> sectors;
  std::size_t num = 0;
  for_lanes(lanes, [&](int lane) {
    if (places[lane].space != Space::global) return;
    (writes ? counts.global_bytes_written : counts.global_bytes_read) += bytes;
    sectors[num++] = reinterpret_cast<std::uintptr_t>(places[lane].data) / 32;
  });
  if (num == 0) return;
  const auto end = sectors.begin() + static_cast<std::ptrdiff_t>(num);
  std::sort(sectors.begin(), end);
  counts.global_sectors += static_cast<std::uint64_t>(std::unique(sectors.begin(), end) - sectors.begin());
  ++counts.global_requests;
}

// A wavefront serves 128 bytes; each bank has one word of 4 bytes.
void count_wavefronts(Counts& counts, const Warp::Place* places, std::uint32_t lanes, std::size_t bytes) {
  std::array<std::vector<std::size_t>, 32> words;  // [bank]: distinct ones
  std::size_t most = 0;
  std::size_t distinct = 0;
  for_lanes(lanes, [&](int lane) {
    const Warp::Place& place = places[lane];
    if (place.space != Space::shared) return;
    for (std::size_t at = place.offset / 4; at <= (place.offset + bytes - 1) / 4; ++at) {
      auto& of_bank = words[at % 32];
      if (std::find(of_bank.begin(), of_bank.end(), at) == of_bank.end()) {
        of_bank.push_back(at);
        ++distinct;
      }
      most = std::max(most, of_bank.size());
    }
  });
  counts.shared_wavefronts += most;
  counts.shared_wavefronts_least += (distinct + 31) / 32;
}

}  // namespace

void count_request(Warp& warp, const Warp::Place* places, std::uint32_t lanes, std::size_t bytes, bool writes) {
  Counts& counts = warp.block().launch.counts;
  count_global(counts, places, lanes, bytes, writes);
  bool is_shared = false;
  for_lanes(lanes, [&](int lane) { is_shared = is_shared || places[lane].space == Space::shared; });
  if (!is_shared) return;
  ++counts.shared_requests;
  const int together = static_cast<int>(bytes <= 4 ? 32 : 128 / bytes);  // lanes that a wavefront can serve
  for (int first = 0; first < kLanes; first += together) {
    const std::uint32_t some = (together == kLanes ? ~0U : (1U << together) - 1) << first;
    count_wavefronts(counts, places, lanes & some, bytes);
  }
}

}  // namespace lockstep::ptx
