#include "bench/collective_perf/flags.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "core/error.h"

namespace lockstep::sweep {

std::vector<std::int64_t> sizes_of(const SizeRange& range) {
  const bool multiplies = range.step_factor > 1;
  LOCKSTEP_CHECK(range.min_bytes == range.max_bytes || (multiplies ? range.min_bytes > 0 : range.step_bytes > 0),
                 "sizes would never end");
  std::vector<std::int64_t> sizes{range.min_bytes};
  while (true) {
    const std::int64_t next = multiplies ? sizes.back() * range.step_factor : sizes.back() + range.step_bytes;
    if (next > range.max_bytes || next == sizes.back()) return sizes;
    sizes.push_back(next);
  }
}

std::int64_t block_count(collectives::Kind kind, std::int64_t size_bytes, core::DType dtype, int num_ranks) {
  const auto element = static_cast<std::int64_t>(core::size_of(dtype));
  const bool has_block_a_rank = collectives::message_bytes(kind, 2, 1, dtype) > element;
  if (!has_block_a_rank) return size_bytes / element;
  const std::int64_t elements_in_16_bytes = 16 / element;
  return size_bytes / element / num_ranks / elements_in_16_bytes * elements_in_16_bytes;
}

namespace {

// A flag that is not at its default, and the transports that understand it.
struct Rule {
  const char* name;
  const char* default_text;
  bool (*is_set)(const DeviceFlags&);
  bool (*understands)(std::string_view transport);
  const char* transports;  // transports that understand it
  const char* why;
};

bool is_cuda(std::string_view transport) {
  return transport == "cuda";
}
bool is_nccl(std::string_view transport) {
  return transport == "nccl";
}

constexpr const char* kOnGpus = "cuda or nccl";
constexpr const char* kNoCommunicator = "it configures NCCL's communicators";

const std::array kRules{
    Rule{"-G,--cudagraph", "0", [](const DeviceFlags& f) { return f.graph_launches > 0; }, on_gpus, kOnGpus,
         "calls are not captured into CUDA graphs"},
    Rule{"-C,--report_cputime", "0", [](const DeviceFlags& f) { return f.report_cpu_time; }, on_gpus, kOnGpus,
         "its calls enqueue no work"},
    Rule{"-z,--blocking", "0", [](const DeviceFlags& f) { return f.blocking != Blocking::none; }, on_gpus, kOnGpus,
         "every call is waited for and timed by itself already"},
    Rule{"-R,--local_register", "0", [](const DeviceFlags& f) { return f.registration != 0; }, is_nccl, "nccl",
         "it has no buffer registration"},
    Rule{"-M,--memory", "0", [](const DeviceFlags& f) { return f.reports_memory; }, on_gpus, kOnGpus,
         "it reports memory of GPUs"},
    Rule{"-y,--stream_null", "0", [](const DeviceFlags& f) { return f.null_stream; }, on_gpus, kOnGpus,
         "there are no CUDA streams"},
    Rule{"-x,--cta_policy", "0", [](const DeviceFlags& f) { return f.nccl.cta_policy.has_value(); }, is_nccl, "nccl",
         kNoCommunicator},
    Rule{"--min-ctas", "without it", [](const DeviceFlags& f) { return f.nccl.min_ctas.has_value(); }, is_nccl, "nccl",
         kNoCommunicator},
    Rule{"--max-ctas", "without it", [](const DeviceFlags& f) { return f.nccl.max_ctas.has_value(); }, is_nccl, "nccl",
         kNoCommunicator},
    Rule{"--cga-cluster-size", "without it", [](const DeviceFlags& f) { return f.nccl.cga_cluster_size.has_value(); },
         is_nccl, "nccl", kNoCommunicator},
    Rule{"--split-share", "without it", [](const DeviceFlags& f) { return f.nccl.split_share.has_value(); }, is_nccl,
         "nccl", kNoCommunicator},
    Rule{"--net", "without it", [](const DeviceFlags& f) { return !f.nccl.net_name.empty(); }, is_nccl, "nccl",
         kNoCommunicator},
    Rule{"--protocol", "auto", [](const DeviceFlags& f) { return f.protocol != "auto"; }, is_cuda, "cuda",
         "its protocols cannot be chosen here"},
    Rule{"--blocks", "0", [](const DeviceFlags& f) { return f.blocks > 0; }, is_cuda, "cuda",
         "its collectives are not Lockstep's kernels"},
};

void check_rule(const Rule& rule, const DeviceFlags& flags, const std::vector<std::string>& transports) {
  if (!rule.is_set(flags)) return;
  const auto other = std::find_if_not(transports.begin(), transports.end(), rule.understands);
  if (other == transports.end()) return;
  throw core::usage_error(fmt::format("{} with --transport {}: {}; allowed: {}, or --transport {}", rule.name, *other,
                                      rule.why, rule.default_text, rule.transports));
}

}  // namespace

void check_device_flags(const DeviceFlags& flags, const std::vector<std::string>& transports) {
  for (const Rule& rule : kRules) check_rule(rule, flags, transports);
  const libraries::NcclConfig& nccl = flags.nccl;
  if (nccl.min_ctas && nccl.max_ctas && *nccl.min_ctas > *nccl.max_ctas) {
    throw core::usage_error(
        fmt::format("--min-ctas {} is above --max-ctas {}; allowed: at most that", *nccl.min_ctas, *nccl.max_ctas));
  }
  if (flags.null_stream && flags.graph_launches > 0) {
    throw core::usage_error(
        "-y,--stream_null with -G: CUDA captures no work of the NULL stream into a graph; allowed: one of the two");
  }
  if (flags.blocking == Blocking::none) return;
  if (flags.graph_launches > 0) {
    throw core::usage_error(
        "-z,--blocking with -G: a replayed graph has no calls to wait for; allowed: one of the two");
  }
  if (flags.report_cpu_time) {
    throw core::usage_error("-z,--blocking with -C: the host's time would include the wait; allowed: one of the two");
  }
}

}  // namespace lockstep::sweep
