#include "trainer/train/async_messages.h"

#include <algorithm>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/wait.h"

namespace lockstep::trainer {
namespace {

constexpr int kWeights = static_cast<int>(MailChannel::weights);

template <class Visit>
void for_each_bucket(RankModel& model, Packed what, const Visit& visit) {
  for (RankStage& stage : model.stages()) {
    for (std::int32_t b = 0; b < stage.store->num_buckets(); ++b) {
      const kernels::InOut view = what == Packed::masters ? stage.store->own_masters(b) : stage.store->own_gradient(b);
      visit(std::span<std::byte>(static_cast<std::byte*>(view.data), kernels::size_bytes(view.dtype, view.elems)));
    }
  }
}

}  // namespace

void Mail::send(int peer, std::span<const std::byte> bytes) {
  sent_bytes_ += static_cast<std::int64_t>(bytes.size());
  wait_for(messages_.send(peer, kWeights, bytes), peer);
}

void Mail::receive(int peer, std::span<std::byte> bytes) {
  wait_for(messages_.recv(peer, kWeights, bytes), peer);
}

void Mail::post(int peer, MailChannel channel, Bytes bytes) {
  sent_bytes_ += static_cast<std::int64_t>(bytes.size());
  Posted& posted = posted_.emplace_back(Posted{peer, std::move(bytes), {}});
  posted.request = messages_.send(peer, static_cast<int>(channel), posted.bytes);
}

void Mail::wait_for_posted() {
  for (const Posted& posted : std::exchange(posted_, {})) wait_for(posted.request, posted.peer);
}

void Mail::wait_for(transports::Request request, int peer) {
  const core::Deadline deadline = core::Deadline::after(timeout_);
  while (!messages_.done(request)) {
    std::erase_if(posted_, [&](const Posted& posted) { return messages_.done(posted.request); });
    messages_.idle();
    if (!deadline.passed()) continue;
    throw core::Error(core::Failure::timeout,
                      "rank " + std::to_string(messages_.rank()) + " waits for a message with rank " +
                          std::to_string(peer) +
                          " (next in the asynchronous server's order) for longer than --timeout");
  }
}

Bytes packed(RankModel& model, Packed what) {
  Bytes all;
  for_each_bucket(model, what, [&](std::span<std::byte> bytes) { all.insert(all.end(), bytes.begin(), bytes.end()); });
  return all;
}

void unpack(RankModel& model, Packed what, std::span<const std::byte> all) {
  for_each_bucket(model, what, [&](std::span<std::byte> bytes) {
    std::copy_n(all.begin(), bytes.size(), bytes.begin());
    all = all.subspan(bytes.size());
  });
}

}  // namespace lockstep::trainer
