#include "collectives/backends/mesh.h"

#include <algorithm>
#include <set>
#include <utility>

#include "collectives/backends/backend.h"
#include "collectives/backends/backend_kinds.h"
#include "collectives/tuning/tuning.h"
#include "core/error.h"

namespace lockstep::backends {
namespace {

int queue_of(std::span<const int> queue_of_channel, std::size_t channel) {
  return queue_of_channel.empty() ? kComputeQueue : queue_of_channel[channel];
}

}  // namespace

int collectives_side_by_side(std::span<const int> queue_of_channel, std::size_t num_channels) {
  std::set<int> queues;
  for (std::size_t c = 0; c < num_channels; ++c) queues.insert(queue_of(queue_of_channel, c));
  return std::max(1, static_cast<int>(queues.size()));
}

RankStreams::RankStreams(core::Device& device, MakeStream make_stream, std::span<const int> queue_of_channel,
                         const std::vector<bool>& is_member_of_channel)
    : compute_(device.make_stream()) {
  LOCKSTEP_CHECK(queue_of_channel.empty() || queue_of_channel.size() == is_member_of_channel.size(),
                 "a queue for each channel");
  queues_.compute = compute_.get();
  queues_.of_channel.resize(is_member_of_channel.size());
  for (std::size_t c = 0; c < is_member_of_channel.size(); ++c) {
    if (!is_member_of_channel[c]) continue;
    const int queue = queue_of(queue_of_channel, c);
    if (queue == kComputeQueue) {
      queues_.of_channel[c] = compute_.get();
      continue;
    }
    std::unique_ptr<core::Stream>& stream = of_queue_[queue];
    if (!stream) stream = make_stream(device);
    queues_.of_channel[c] = stream.get();
  }
}

void RankStreams::synchronize() {
  compute_->synchronize();
  for (const auto& [queue, stream] : of_queue_) stream->synchronize();
}

namespace {

class CpuMeshDevice final : public MeshDevice {
 public:
  CpuMeshDevice(std::unique_ptr<core::Device> device, PrepareInChannel prepare)
      : device_(std::move(device)), prepare_(std::move(prepare)) {}

  core::Device& device() override { return *device_; }
  const MeshQueues* queues() override { return nullptr; }
  void settle() override {}
  Prepared prepare(std::size_t channel, const collectives::Operation& operation, std::string_view algorithm) override {
    return prepare_(channel, operation, algorithm);
  }
  void leave() override {}

 private:
  const std::unique_ptr<core::Device> device_;
  const PrepareInChannel prepare_;
};

void check_channel(const Channel& channel, int num_ranks) {
  LOCKSTEP_CHECK(!channel.empty(), "a channel without members");
  for (std::size_t i = 0; i < channel.size(); ++i) {
    LOCKSTEP_CHECK(channel[i] >= 0 && channel[i] < num_ranks, "a member of a channel is no rank");
    LOCKSTEP_CHECK(i == 0 || channel[i - 1] < channel[i], "members of a channel are not ascending");
  }
}

// Among three ranks or more, each rank of a one-shot all-reduce adds in its own order: replicas of weights would drift
// apart by rounding.
std::string with_equal_bits(std::string algorithm, int num_members) {
  return algorithm.starts_with("one_shot") && num_members > 2 ? "two_shot" : algorithm;
}

std::string automatic(const MeshOptions& options, std::string_view transport, const collectives::Operation& operation,
                      int num_members) {
  const tuning::Query query{transport, operation.kind, num_members,
                            collectives::message_bytes(operation.kind, num_members, operation.count, operation.dtype)};
  const auto measured = options.tuned == nullptr ? std::nullopt : tuning::measured_choice(*options.tuned, query);
  return with_equal_bits(measured ? *measured : tuning::rule_of_thumb(query), num_members);
}

}  // namespace

std::unique_ptr<MeshDevice> make_cpu_mesh_device(const MeshOptions& options, LastingMemory& memory,
                                                 PrepareInChannel prepare) {
  auto device = core::make_cpu_device(memory.allocator());
  if (options.wrap_device) device = options.wrap_device(std::move(device));
  return std::make_unique<CpuMeshDevice>(std::move(device), std::move(prepare));
}

void run_mesh_rank(MeshDevice& on, transports::Transport& messages, core::AbortFlag& abort, bool threaded,
                   const std::vector<bool>& is_member_of_channel, const MeshBody& body) {
  const auto prepare = [&](std::size_t channel, const collectives::Operation& operation, std::string_view algorithm) {
    LOCKSTEP_CHECK(is_member_of_channel.at(channel), "this rank is no member of the channel");
    return on.prepare(channel, operation, algorithm);
  };
  MeshRank rank{messages,    on.device(),           abort, threaded && on.queues() == nullptr, prepare,
                on.queues(), [&on] { on.settle(); }};
  body(rank);
  on.leave();
}

bool is_member(const Channel& channel, int rank) {
  return std::binary_search(channel.begin(), channel.end(), rank);
}

int index_in(const Channel& channel, int rank) {
  return static_cast<int>(std::lower_bound(channel.begin(), channel.end(), rank) - channel.begin());
}

plan::Plan mesh_plan(const MeshOptions& options, std::string_view transport, const collectives::Operation& operation,
                     int num_members, std::string_view algorithm) {
  if (algorithm == kLibrary) {
    throw core::usage_error("algorithm 'library': groups of ranks run plans; allowed: auto, or one of the catalogue");
  }
  if (algorithm != "auto") return plan_for(operation, num_members, algorithm);
  return plan_for(operation, num_members, automatic(options, transport, operation, num_members));
}

void run_mesh(const MeshOptions& options, std::span<const Channel> channels,
              const std::function<void(MeshRank&)>& body) {
  LOCKSTEP_CHECK(options.num_ranks >= 1 && options.threads_per_rank >= 1, "a mesh without ranks or threads");
  for (const Channel& channel : channels) check_channel(channel, options.num_ranks);
  if (options.mpi != nullptr) {
    run_mpi_mesh(options, channels, body);
  } else {
    run_local_mesh(options, channels, body);
  }
}

}  // namespace lockstep::backends
