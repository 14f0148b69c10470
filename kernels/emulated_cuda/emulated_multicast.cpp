#include "kernels/emulated_cuda/emulated_multicast.h"

#include <sys/mman.h>

#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"

namespace lockstep::kernels::emulated {
namespace {

struct Range {
  std::size_t size_bytes;
  std::vector<std::byte*> replicas;
};

// Shared by all ranks' threads, as a device's address space is.
struct Ranges {
  std::mutex mutex;
  std::map<std::byte*, Range> ranges;
};

Ranges& all_ranges() {
  static Ranges ranges;
  return ranges;
}

}  // namespace

std::byte* make_multicast(std::vector<std::byte*> replicas, std::size_t size_bytes) {
  void* const reserved = mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LOCKSTEP_CHECK(reserved != MAP_FAILED, "no address space");
  auto* const multicast = static_cast<std::byte*>(reserved);
  Ranges& all = all_ranges();
  const std::lock_guard lock(all.mutex);
  all.ranges[multicast] = {size_bytes, std::move(replicas)};
  return multicast;
}

void end_multicast(std::byte* multicast) {
  Ranges& all = all_ranges();
  const std::lock_guard lock(all.mutex);
  const auto found = all.ranges.find(multicast);
  LOCKSTEP_CHECK(found != all.ranges.end(), "not a multicast address");
  munmap(multicast, found->second.size_bytes);
  all.ranges.erase(found);
}

std::vector<std::byte*> replicas_at(const void* address) {
  auto* const place = const_cast<std::byte*>(static_cast<const std::byte*>(address));
  Ranges& all = all_ranges();
  const std::lock_guard lock(all.mutex);
  auto after = all.ranges.upper_bound(place);
  LOCKSTEP_CHECK(after != all.ranges.begin(), "a multimem access to what is no multicast address");
  const auto& [begin, range] = *--after;
  const auto offset = static_cast<std::size_t>(place - begin);
  LOCKSTEP_CHECK(offset < range.size_bytes, "a multimem access to what is no multicast address");
  std::vector<std::byte*> replicas;
  for (std::byte* replica : range.replicas) replicas.push_back(replica + offset);
  return replicas;
}

}  // namespace lockstep::kernels::emulated
