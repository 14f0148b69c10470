// The command line of ddp_overlap_bench.
#pragma once

#include <optional>
#include <vector>

#include "bench/parallel/step_rank.h"
#include "collectives/transports/paced_link.h"
#include "workload/compression.h"

namespace lockstep::parallel_bench {

using Link = std::optional<transports::LinkSpec>;  // none: as fast as this machine's memory

struct DdpFlags {
  StepFlags step;
  std::vector<double> bucket_caps_mb{25};  // MiB; 0: one bucket
  std::vector<Link> links{std::nullopt};
  std::vector<workload::Compression> compressions{{}};
};

// Throws a usage Error: one line that names the flag, its value and what is allowed.
DdpFlags parse_ddp_flags(int argc, const char* const* argv);

// One row of the table.
struct DdpCase {
  int replicas = 2;
  double bucket_cap_mb = 25;
  Link link = {};
  workload::Compression compression = {};
};
std::vector<DdpCase> ddp_cases(const DdpFlags& flags);
trainer::TrainOptions options_of(const DdpFlags& flags, const DdpCase& one);  // checked
bool is_oversubscribed(const DdpFlags& flags, const DdpCase& one);            // more kernel threads than cores

}  // namespace lockstep::parallel_bench
