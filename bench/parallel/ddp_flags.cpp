#include "bench/parallel/ddp_flags.h"

#include <algorithm>
#include <array>

#include "bench/trainer/flags.h"
#include "core/cores.h"
#include "core/error.h"
#include "trainer/train/train.h"

namespace lockstep::parallel_bench {
namespace {

using program::FlagValue;
using Flag = program::FlagOf<DdpFlags>;

std::vector<double> caps_of(const FlagValue& value) {
  std::vector<double> caps;
  for (const FlagValue& part : value.list()) caps.push_back(part.number_from(0, 1e6));
  return caps;
}

std::vector<workload::Compression> compressions_of(const FlagValue& value) {
  std::vector<workload::Compression> compressions;
  for (const FlagValue& part : value.list()) compressions.push_back(mini_train::compression_of(part));
  return compressions;
}

// Links are separated by semicolons, because a link contains commas.
std::vector<Link> links_of(const FlagValue& value) {
  std::vector<Link> links;
  for (std::size_t begin = 0; begin <= value.text.size();) {
    const std::size_t end = std::min(value.text.find(';', begin), value.text.size());
    const FlagValue part{value.names, value.text.substr(begin, end - begin)};
    links.push_back(part.text == "none" ? Link() : Link(mini_train::link_of(part)));
    begin = end + 1;
  }
  return links;
}

const std::array kFlags{
    Flag{"--dtype", "f32", "dtype of weights and activations: f32, bf16 or f16 (with f32 master weights)",
         [](DdpFlags& f, const FlagValue& v) { f.step.options.layout.compute = mini_train::dtype_of(v); }},
    Flag{"--grad-dtype", "f32", "dtype in which gradients are kept and reduced: f32, or that of --dtype",
         [](DdpFlags& f, const FlagValue& v) { f.step.options.layout.gradient = mini_train::dtype_of(v); }},
    Flag{"--bucket-cap-mb", "25",
         "MiB of gradients per bucket, a list; the first bucket has 1 MiB; 0: one bucket for all",
         [](DdpFlags& f, const FlagValue& v) { f.bucket_caps_mb = caps_of(v); }},
    Flag{"--compression", "none",
         "encoding of gradients on the wire, a list: none, bf16, int8, int4, fp8, sign, topk:density=D, "
         "threshold:at=T:density=D, randomk:density=D, powersgd:rank=R; each takes a suffix :feedback=0 or 1",
         [](DdpFlags& f, const FlagValue& v) { f.compressions = compressions_of(v); }},
    Flag{"--link", "none", "emulated links between ranks, a list: 'latency_us=L,gbps=B;...'; none: as fast as memory",
         [](DdpFlags& f, const FlagValue& v) { f.links = links_of(v); }},
};

void check(const DdpFlags& flags) {
  const bool links = std::any_of(flags.links.begin(), flags.links.end(), [](const Link& link) { return !!link; });
  if (flags.step.place.mpi && links) {
    throw core::usage_error("--link emulates links between local ranks; allowed: with --transport local");
  }
  if (std::find(flags.step.replicas.begin(), flags.step.replicas.end(), 1) == flags.step.replicas.end()) return;
  throw core::usage_error("--dp 1 has nothing to reduce; allowed: 2 to 64");
}

}  // namespace

DdpFlags parse_ddp_flags(int argc, const char* const* argv) {
  DdpFlags flags;
  begin_step_flags(argc, argv, flags.step);
  program::CommandLine line(flags.step.program +
                            ": how much of the reduction of gradients a data-parallel training step hides.");
  declare_step_flags(line, flags.step);
  declare_all(line, kFlags, "Gradients");
  line.parse(argc, argv);
  read_step_flags(line, flags.step);
  read_all(line, kFlags, flags);
  check(flags);
  return flags;
}

std::vector<DdpCase> ddp_cases(const DdpFlags& flags) {
  std::vector<DdpCase> cases;
  for (const Link& link : flags.links) {
    for (const int replicas : flags.step.replicas) {
      for (const workload::Compression compression : flags.compressions) {
        for (const double cap_mb : flags.bucket_caps_mb) cases.push_back({replicas, cap_mb, link, compression});
      }
    }
  }
  return cases;
}

trainer::TrainOptions options_of(const DdpFlags& flags, const DdpCase& one) {
  trainer::TrainOptions options = flags.step.options;
  options.layout.dp = one.replicas;
  options.layout.bucket_cap_bytes = static_cast<std::int64_t>(one.bucket_cap_mb * (1 << 20));
  options.link = one.link;
  options.layout.compression = one.compression;
  return trainer::checked(options);
}

bool is_oversubscribed(const DdpFlags& flags, const DdpCase& one) {
  const trainer::TrainOptions& options = flags.step.options;
  if (options.mpi != nullptr) return options.mpi->placement().oversubscribed;
  return one.replicas * options.threads > core::usable_cores();
}

}  // namespace lockstep::parallel_bench
