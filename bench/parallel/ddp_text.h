// The text that ddp_overlap_bench prints, as pure functions of the results.
#pragma once

#include <string>
#include <vector>

#include "bench/parallel/ddp_flags.h"
#include "bench/parallel/ddp_result.h"

namespace lockstep::parallel_bench {

std::string ddp_heading_text(const DdpFlags& flags);
std::string ddp_row_text(const DdpFlags& flags, const DdpCase& one, const DdpResult& result);
std::string ddp_ending_text(const std::vector<DdpCase>& cases, const std::vector<DdpResult>& results);

std::string link_text(const Link& link);  // "10 us, 2 GB/s"

}  // namespace lockstep::parallel_bench
