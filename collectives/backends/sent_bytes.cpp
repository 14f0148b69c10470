#include "collectives/backends/sent_bytes.h"

#include "collectives/plan/count.h"

namespace lockstep::backends {

std::int64_t sent_bytes(const Prepared& prepared, const collectives::Operation& operation, int member) {
  if (!prepared.plan) return -1;
  const plan::Plan& plan = *prepared.plan;
  return plan::count(plan, plan::contents_of(plan), operation).ranks[static_cast<std::size_t>(member)].bytes_sent;
}

}  // namespace lockstep::backends
