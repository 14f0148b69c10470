// The world of one rank: its number, the number of ranks, and how ranks meet outside of the measured part.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

namespace lockstep::transports {

class World {
 public:
  virtual ~World() = default;
  virtual std::string_view name() const = 0;  // "local", "mpi"
  virtual int rank() const = 0;
  virtual int num_ranks() const = 0;
  // Number of a rank of this world in messages: if the world is a group among more ranks, its number among all.
  virtual int number_of(int rank) const { return rank; }

  // barrier() and all_gather() throw Error(timeout) at the world's deadline, and the abort's Error if a rank has failed
  // or is lost.
  virtual void barrier() = 0;
  // Throws the abort's Error if a rank has failed; for waits other than the two above.
  virtual void check() {}
  // all[r] is rank r's `mine`; all.size() == num_ranks * mine.size(), the same on every rank.
  virtual void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) = 0;
};

// Returns [rank] the value that the rank passed.
template <class T>
std::vector<T> all_gather_value(World& world, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>, "values travel as bytes");
  std::vector<T> all(static_cast<std::size_t>(world.num_ranks()));
  world.all_gather(std::as_bytes(std::span<const T>(&mine, 1)), std::as_writable_bytes(std::span<T>(all)));
  return all;
}

}  // namespace lockstep::transports
