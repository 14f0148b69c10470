#include "schedules/partition.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace lockstep::schedules {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// A dynamic programme over (items, parts): `join(before, part)` is the value of a partition whose last part has the sum
// `part` and whose other parts have the value `before`. The smallest value wins; of equal ones, the shortest last part.
class Rows {
 public:
  Rows(std::span<const double> costs, std::int32_t parts) : items_(costs.size()), parts_(parts), sums_(items_ + 1) {
    for (std::size_t i = 0; i < items_; ++i) sums_[i + 1] = sums_[i] + costs[i];
  }

  template <class Join>
  double run(const Join& join) {
    values_.assign(static_cast<std::size_t>(parts_) + 1, std::vector<double>(items_ + 1, kNever));
    begins_.assign(values_.size(), std::vector<std::size_t>(items_ + 1, 0));
    values_[0][0] = 0;
    for (std::size_t k = 1; k < values_.size(); ++k) {
      for (std::size_t end = k; end <= items_; ++end) {
        for (std::size_t begin = end; begin-- > k - 1;) {
          if (values_[k - 1][begin] == kNever) continue;
          const double value = join(values_[k - 1][begin], sums_[end] - sums_[begin]);
          if (value >= values_[k][end]) continue;
          values_[k][end] = value;
          begins_[k][end] = begin;
        }
      }
    }
    return values_.back()[items_];
  }

  std::vector<std::int32_t> counts() const {
    std::vector<std::int32_t> found(static_cast<std::size_t>(parts_));
    std::size_t end = items_;
    for (std::size_t k = found.size(); k > 0; --k) {
      found[k - 1] = static_cast<std::int32_t>(end - begins_[k][end]);
      end = begins_[k][end];
    }
    return found;
  }

 private:
  std::size_t items_;
  std::int32_t parts_;
  std::vector<double> sums_;                      // sum of the items before each item
  std::vector<std::vector<double>> values_;       // by number of parts and items
  std::vector<std::vector<std::size_t>> begins_;  // first item of the last part
};

}  // namespace

std::vector<std::int32_t> balanced_parts(std::span<const double> costs, std::int32_t parts) {
  LOCKSTEP_CHECK(parts >= 1 && static_cast<std::size_t>(parts) <= costs.size(), "at least an item for each part");
  Rows rows(costs, parts);
  const double largest = rows.run([](double before, double part) { return std::max(before, part); });
  const double allowed = largest * (1 + 1e-12);  // tolerance for sums in another order
  rows.run([&](double before, double part) { return part > allowed ? kNever : before + part * part; });
  return rows.counts();
}

}  // namespace lockstep::schedules
