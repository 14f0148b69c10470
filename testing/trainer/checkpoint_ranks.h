// For tests: a folder that is gone with its owner, files in it, and what an action throws.
#pragma once

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <fstream>
#include <functional>
#include <ios>
#include <iterator>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "core/random.h"
#include "testing/core/fixtures.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/manifest.h"

namespace lockstep::trainer {

using core::TemporaryFolder;

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Empty if nothing is thrown. Other exceptions than ours pass.
inline std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

// For tests: writers as threads that meet, tensors whose every element is known, and random ways to share them out.

// Runs body on this many ranks; returns what each threw, empty where it threw nothing.
inline std::vector<std::string> run_writers(std::int32_t count,
                                            const std::function<void(const CheckpointRanks&)>& body) {
  std::vector<std::string> texts(static_cast<std::size_t>(count));
  std::vector<std::string> errors(texts.size());
  std::barrier meeting(count);
  std::vector<std::jthread> threads;
  for (std::int32_t r = 0; r < count; ++r) {
    threads.emplace_back([&, r] {
      const auto gather = [&, r](const std::string& mine) {
        texts[static_cast<std::size_t>(r)] = mine;
        meeting.arrive_and_wait();
        std::vector<std::string> all = texts;
        meeting.arrive_and_wait();
        return all;
      };
      errors[static_cast<std::size_t>(r)] = error_of([&] { body({r, gather}); });
    });
  }
  threads.clear();
  return errors;
}

// The value of element k of a tensor after some step: different everywhere.
inline float known_value(std::size_t tensor, std::int64_t k, std::int64_t step) {
  const std::uint64_t bits = core::hash64(tensor, static_cast<std::uint64_t>(k), static_cast<std::uint64_t>(step));
  return static_cast<float>(bits >> 40) * 0x1p-20F;
}

// Pieces of tensors with memory of their own.
struct Share {
  std::vector<Piece> pieces;
  std::vector<float> memory;

  // After all pieces have been added: data points to memory.
  void place() {
    std::int64_t elems = 0;
    for (const Piece& piece : pieces) elems += piece.count;
    memory.assign(static_cast<std::size_t>(elems), -1);
    float* next = memory.data();
    for (Piece& piece : pieces) {
      piece.data = next;
      next += piece.count;
    }
  }
  void fill(std::int64_t step) {
    for (const Piece& piece : pieces) {
      for (std::int64_t k = 0; k < piece.count; ++k) {
        piece.data[k] = known_value(piece.tensor, piece.whole_begin + k, step);
      }
    }
  }
  std::int64_t wrong(std::int64_t step) const {
    std::int64_t count = 0;
    for (const Piece& piece : pieces) {
      for (std::int64_t k = 0; k < piece.count; ++k) {
        count += piece.data[k] != known_value(piece.tensor, piece.whole_begin + k, step) ? 1 : 0;
      }
    }
    return count;
  }
};

// One rank has every element.
inline Share whole_share(const std::vector<WholeTensor>& tensors) {
  Share share;
  for (std::size_t t = 0; t < tensors.size(); ++t) share.pieces.push_back({t, 0, elems_of(tensors[t].shape)});
  share.place();
  return share;
}

// Every element falls to one of the ranks: tensors are cut at random places, or by columns, and dealt out.
inline std::vector<Share> random_shares(const std::vector<WholeTensor>& tensors, std::int32_t ranks,
                                        core::Random& random) {
  std::vector<Share> shares(static_cast<std::size_t>(ranks));
  const auto somebody = [&]() -> Share& { return shares[random.below(shares.size())]; };
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::int64_t elems = elems_of(tensors[t].shape);
    const std::int64_t columns = tensors[t].shape.back();
    if (tensors[t].shape.size() == 2 && columns % ranks == 0 && random.below(2) == 0) {
      const std::int64_t width = columns / ranks;
      for (std::int64_t begin = 0; begin < elems; begin += width) {
        shares[static_cast<std::size_t>(begin / width % ranks)].pieces.push_back({t, begin, width});
      }
      continue;
    }
    for (std::int64_t begin = 0; begin < elems;) {
      const std::int64_t most = std::min<std::int64_t>(elems - begin, 1 + elems / 3);
      const auto count = 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most)));
      somebody().pieces.push_back({t, begin, count});
      begin += count;
    }
  }
  for (Share& share : shares) share.place();
  return shares;
}

}  // namespace lockstep::trainer
