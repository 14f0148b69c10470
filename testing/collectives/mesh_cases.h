// For tests: channels of a grid of ranks, and exact collectives and messages on them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "collectives/backends/mesh.h"
#include "collectives/verify.h"
#include "core/error.h"

namespace lockstep::backends {

// All ranks, the rows and columns of a grid of two rows if the number is even, and every rank alone: in this order.
inline std::vector<Channel> grid_channels(int num_ranks) {
  std::vector<Channel> channels(1);
  for (int r = 0; r < num_ranks; ++r) channels[0].push_back(r);
  if (num_ranks % 2 == 0) {
    const int columns = num_ranks / 2;
    for (int row : {0, 1}) {
      Channel& channel = channels.emplace_back();
      for (int c = 0; c < columns; ++c) channel.push_back(row * columns + c);
    }
    for (int c = 0; c < columns; ++c) channels.push_back({c, c + columns});
  }
  for (int r = 0; r < num_ranks; ++r) channels.push_back({r});
  return channels;
}

inline bool is_of(const Channel& channel, int rank) {
  return std::binary_search(channel.begin(), channel.end(), rank);
}

// One rank's part of an operation on a channel, on buffers of its device, with the expected result.
class ChannelCase {
 public:
  ChannelCase(MeshRank& mesh, const Channel& members, std::size_t channel, const collectives::Operation& operation,
              const std::string& algorithm)
      : operation_(operation),
        ranks_(static_cast<int>(members.size())),
        rank_(static_cast<int>(std::find(members.begin(), members.end(), mesh.messages.rank()) - members.begin())),
        verifier_(operation, ranks_, channel + 5),
        prepared_(mesh.prepare(channel, operation, algorithm)) {
    if (operation.in_place) {
      const auto layout = collectives::in_place_layout(operation, ranks_, rank_);
      auto* memory = static_cast<std::byte*>(mesh.device.allocate(static_cast<std::size_t>(layout.buffer_bytes) + 1));
      input_ = memory + layout.input_at;
      output_ = memory + layout.output_at;
      return;
    }
    const auto allocate = [&mesh](std::int64_t bytes) {
      return static_cast<std::byte*>(mesh.device.allocate(static_cast<std::size_t>(bytes) + 1));
    };
    input_ = allocate(collectives::input_bytes(operation, ranks_, rank_));
    output_ = allocate(collectives::output_bytes(operation, ranks_, rank_));
  }

  void run() {
    verifier_.fill_poison(rank_, round_, output_);
    verifier_.fill_input(rank_, round_, input_);
    prepared_.collective->run(input_, output_);
    if (verifier_.count_wrong(rank_, round_, output_) == 0) {
      ++round_;
      return;
    }
    throw core::Error(core::Failure::wrong_data, std::string(name_of(operation_.kind)) + ' ' + prepared_.algorithm +
                                                     " among " + std::to_string(ranks_) +
                                                     (operation_.in_place ? " in place" : " out of place") +
                                                     ", count " + std::to_string(operation_.count) + ": wrong");
  }
  const Prepared& prepared() const { return prepared_; }
  std::byte* input() const { return input_; }
  std::byte* output() const { return output_; }

 private:
  collectives::Operation operation_;
  int ranks_;
  int rank_;
  collectives::Verifier verifier_;
  Prepared prepared_;
  std::byte* input_ = nullptr;
  std::byte* output_ = nullptr;
  std::uint64_t round_ = 0;
};

// Collectives that training runs on a channel, in place and out of place, small and large.
inline std::vector<ChannelCase> training_cases(MeshRank& mesh, const Channel& members, std::size_t channel,
                                               const std::string& algorithm) {
  using collectives::Kind;
  std::vector<ChannelCase> cases;
  for (Kind kind : {Kind::all_reduce, Kind::reduce_scatter, Kind::all_gather, Kind::all_to_all, Kind::broadcast}) {
    for (std::int64_t count : {1, 301, 50'000}) {
      for (bool in_place : {false, true}) {
        collectives::Operation operation;
        operation.kind = kind;
        operation.count = count;
        operation.in_place = in_place;
        cases.emplace_back(mesh, members, channel, operation, algorithm);
      }
    }
  }
  return cases;
}

// Every rank sends to and receives from every other, several messages at once.
inline void exchange_messages(MeshRank& mesh, std::size_t message_bytes, int rounds) {
  transports::Transport& messages = mesh.messages;
  const int me = messages.rank();
  const auto content = [](int from, int to, int round) { return static_cast<std::byte>(from * 31 + to * 7 + round); };
  for (int round = 0; round < rounds; ++round) {
    std::vector<transports::Request> requests;
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> received(static_cast<std::size_t>(messages.num_ranks()));
    for (int peer = 0; peer < messages.num_ranks(); ++peer) {
      if (peer == me) continue;
      sent.emplace_back(message_bytes, content(me, peer, round));
      auto& place = received[static_cast<std::size_t>(peer)];
      place.resize(message_bytes);
      requests.push_back(messages.recv(peer, round % 3, place));
      requests.push_back(messages.send(peer, round % 3, sent.back()));
    }
    for (const auto& request : requests) {
      while (!messages.done(request)) messages.idle();
    }
    for (int peer = 0; peer < messages.num_ranks(); ++peer) {
      const auto& bytes = received[static_cast<std::size_t>(peer)];
      const std::byte wanted = content(peer, me, round);
      if (std::all_of(bytes.begin(), bytes.end(), [wanted](std::byte b) { return b == wanted; })) continue;
      throw core::Error(core::Failure::wrong_data, "a message from rank " + std::to_string(peer) + " is wrong");
    }
  }
}

}  // namespace lockstep::backends
