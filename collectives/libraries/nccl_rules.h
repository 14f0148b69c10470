// Rules of NCCL as plain data: algorithms and protocols, what it refuses, and grouped messages.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "collectives/collective.h"
#include "collectives/libraries/nccl_api.h"

namespace lockstep::libraries {

// The NCCL algorithm and protocol that run a collective: plain text and rules, without NCCL.
//
// NCCL reads NCCL_ALGO and NCCL_PROTO when a communicator is made (ncclTopoTuneModel, src/graph/tuning.cc), not per
// call: each choice is a communicator of its own, made while they are set (nccl_group.cpp).

// Values of NCCL's variables; empty: unchanged, so the user's value or NCCL's own choice.
struct NcclChoice {
  std::string algo;
  std::string proto;
  friend bool operator==(const NcclChoice&, const NcclChoice&) = default;
  friend bool operator<(const NcclChoice& a, const NcclChoice& b) {
    return std::tie(a.algo, a.proto) < std::tie(b.algo, b.proto);
  }
};

// Parses "library:algo=ring:proto=ll128"; every part but the first is optional. Throws a usage Error.
NcclChoice parse_nccl_choice(std::string_view text);

// The inverse: "library:algo=ring:proto=ll128".
std::string nccl_choice_text(const NcclChoice& choice);

// Returns in one line why NCCL has no such algorithm or protocol for this collective; nothing if it has one, on
// machines that support it.
std::optional<std::string> choice_refusal(const NcclChoice& choice, collectives::Kind kind);

// Rules about operations that NCCL supports, without NCCL: checked before anything is started, and tested without a
// GPU.

// The GPUs and the library that an operation runs on. `compute_capability` is the GPUs', 90 for 9.0; `version_code` as
// ncclGetVersion gives it: 22809 for 2.28.9.
struct NcclPlatform {
  int compute_capability;
  int version_code;
};

// Returns why NCCL cannot do this operation; nothing if it can.
std::optional<std::string> nccl_refusal(const collectives::Operation& operation, int num_ranks,
                                        const NcclPlatform& platform);

// Returns why this version cannot join ranks with these settings, by nccl-tests' flags: "-R 2 needs NCCL 2.27; this one
// is 2.26.2". Nothing if it can.
std::optional<std::string> settings_refusal(const NcclConfig& config, NcclRegistration registration, int version_code);

// Returns why calls of this kind take thread blocks although the configuration asks for none (NCCL's user guide,
// Zero-CTA Optimization); nothing if copy engines do them, which also needs a CUDA driver from 12.5 on and, on one
// host, GPUs of one NVLink domain.
std::optional<std::string> zero_cta_refusal(collectives::Kind kind, NcclRegistration registration, int num_hosts,
                                            int version_code);

// Identifies a GPU in the whole world.
using GpuUuid = std::array<std::uint8_t, 16>;

// Facts that decide whether NCCL lets ranks share a GPU: since 2.30, if NCCL_MULTI_RANK_GPU_ENABLE is 1 (its
// src/init.cc).
struct NcclSharing {
  int version_code;
  bool enabled;  // the variable is 1
};

// Returns why ranks cannot share a GPU, and what to do; nothing if they can.
std::optional<std::string> sharing_refusal(const NcclSharing& sharing);

// Returns why we do not use this version, which does not know our dtypes and algorithms (8-bit floats, pat); nothing if
// we do. What newer versions have is refused by nccl_refusal() and settings_refusal().
std::optional<std::string> version_refusal(int version_code);

// Returns why NCCL cannot join ranks on these GPUs ([rank]); nothing if all differ, or may be shared.
std::optional<std::string> shared_gpu_refusal(std::span<const GpuUuid> gpus, const NcclSharing& sharing);

// Most thread blocks of a call's kernel on the GPU of `rank`, so that the kernels of all ranks on it, which wait for
// each other, run at the same time; 0, NCCL decides, for a rank that has its GPU alone. NCCL launches blocks in
// clusters of 4 on Hopper, which do not fill every multiprocessor: only three quarters are given out.
int most_blocks(std::span<const GpuUuid> gpus, int rank, int num_multiprocessors);

// The configuration that the user asks for, limited to so many thread blocks (0: no limit). Throws a usage Error that
// names --min-ctas or --max-ctas if it asks for more.
NcclConfig config_within(const NcclConfig& asked, int most_blocks);

// Collectives as grouped sends and receives, as data: used if NCCL has no call of its own.

// Elements [first, first + count) of this rank's buffer, sent to or received from a peer (which may be the rank
// itself).
struct Message {
  int peer;
  std::int64_t first;
  std::int64_t count;
};

// Messages that run concurrently: one NCCL group. Receives go to the output.
struct Round {
  std::vector<Message> sends;
  std::vector<Message> receives;
};

// One rank's part. Rounds follow each other.
struct Exchange {
  // If set, rounds send from the output, and the rank's own input is first copied there, to this element; else rounds
  // send from the input.
  std::optional<std::int64_t> own_block_at;
  std::vector<Round> rounds;
};

// For all_to_all_v, send_recv and hypercube that nccl_refusal() accepts; LOCKSTEP_CHECK fails for other kinds.
Exchange exchange_of(const collectives::Operation& operation, int num_ranks, int rank);

}  // namespace lockstep::libraries
