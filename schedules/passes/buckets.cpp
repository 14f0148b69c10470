#include "schedules/passes/buckets.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace lockstep::schedules {
namespace {

// The bucket of one kind of gradients that is being filled.
class Filling {
 public:
  Filling(GroupKind group, const BucketRules& rules) : rules_(rules), open_{.group = group} {}

  // Returns true if the bucket is full.
  bool add(std::size_t index, const Parameter& parameter) {
    open_.part = open_.parameters.empty() ? parameter.part : std::min(open_.part, parameter.part);
    open_.parameters.push_back(index);
    open_.bytes += parameter.elements * parameter.grad_bytes;
    return open_.bytes >= limit();
  }
  bool is_open() const { return !open_.parameters.empty(); }
  GradientBucket close() {
    ++closed_;
    return std::exchange(open_, {.group = open_.group});
  }

 private:
  std::int64_t limit() const {
    if (rules_.limits.empty()) return std::numeric_limits<std::int64_t>::max();
    return rules_.limits[std::min(closed_, rules_.limits.size() - 1)];
  }

  const BucketRules& rules_;
  GradientBucket open_;
  std::size_t closed_ = 0;
};

}  // namespace

BucketRules ddp_rules(std::int64_t cap_bytes) {
  return {.limits = {kDdpFirstBucketBytes, cap_bytes}};
}

BucketRules one_bucket() {
  return {};
}

std::vector<GradientBucket> gradient_buckets(std::span<const Parameter> parameters, const BucketRules& rules) {
  std::vector<GradientBucket> buckets;
  std::map<std::pair<std::int32_t, GroupKind>, Filling> kinds;
  for (std::size_t i = parameters.size(); i-- > 0;) {
    const Parameter& parameter = parameters[i];
    const auto kind = kinds.try_emplace({parameter.grad_bytes, parameter.group}, parameter.group, rules).first;
    if (kind->second.add(i, parameter)) buckets.push_back(kind->second.close());
  }
  for (auto& [key, filling] : kinds) {
    if (filling.is_open()) buckets.push_back(filling.close());
  }
  // Ordered by their first gradients, as PyTorch does.
  std::stable_sort(buckets.begin(), buckets.end(), [](const GradientBucket& a, const GradientBucket& b) {
    return a.parameters.front() > b.parameters.front();
  });
  return buckets;
}

}  // namespace lockstep::schedules
