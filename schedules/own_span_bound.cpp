#include "schedules/own_span_bound.h"

#include <algorithm>
#include <cmath>

namespace lockstep::schedules {
namespace {

constexpr double kSame = 1e-9;

class Bound {
 public:
  Bound(const PipelineShape& shape, const Times& times, const MemoryLimit& memory)
      : p_(shape.ranks),
        m_(shape.microbatches),
        t_(times),
        memory_(memory),
        most_in_flight_(std::min(m_, most_units(memory.most, 1))) {}

  double work() const { return m_ * (t_.forward + t_.input_gradient + t_.weight_gradient); }

  // Every microbatch's way from its forward on rank r to the end of its input gradient there.
  double round_trip(std::int32_t r) const {
    return (p_ - r) * (t_.forward + t_.input_gradient) + 2 * (p_ - 1 - r) * t_.message;
  }

  // From the last forward's start on, rank r does the input gradients that are under way and the weight gradients that
  // are left, and both are limited by what it may hold then. It waits for the rest of the last microbatch's way.
  double idle_of_drain(std::int32_t r) const {
    double most_work = 0;
    for (std::int32_t in_flight = 1; in_flight <= most_in_flight_; ++in_flight) {
      const std::int32_t left = in_flight + most_pending(in_flight);
      most_work = std::max(most_work, in_flight * t_.input_gradient + left * t_.weight_gradient);
    }
    return std::max(0.0, round_trip(r) + t_.weight_gradient - t_.forward - most_work);
  }

  // Forwards before the first backward, from the last rank to the first; each as few as keep the rank's waits within
  // `most_idle`, so that its first backward is as early as can be, and those of the ranks before it.
  std::vector<std::int32_t> warm_up(double most_idle) const {
    std::vector<std::int32_t> forwards(static_cast<std::size_t>(p_));
    double first_backward = 0;  // from the start of the rank's first forward on
    for (std::int32_t r = p_ - 1; r >= 0; --r) {
      const double arrival =
          r + 1 == p_ ? t_.forward : first_backward + t_.forward + t_.input_gradient + 2 * t_.message;
      const std::int32_t count = fewest_forwards(arrival, most_idle, idle_of_drain(r));
      if (count == 0) return {};
      first_backward = std::max(arrival, count * t_.forward);
      forwards[static_cast<std::size_t>(r)] = count;
    }
    return forwards;
  }

  // The least that the worst rank waits in its warm-up and its drain.
  double idle() const {
    double low = 0;
    double high = round_trip(0) + t_.weight_gradient + idle_of_drain(0);
    if (!warm_up(0).empty()) return 0;
    for (int halving = 0; halving < 60; ++halving) {
      const double middle = (low + high) / 2;
      (warm_up(middle).empty() ? low : high) = middle;
    }
    return low;
  }

  // The last rank's forwards and input gradients lie between the first forward's way there and the last gradient's way
  // back, and so do the weight gradients that it needs done to have room for its last forward.
  double through_last_rank() const {
    std::int32_t late = 0;
    for (std::int32_t in_flight = 1; in_flight <= most_in_flight_; ++in_flight) {
      late = std::max(late, in_flight + most_pending(in_flight));
    }
    const double there_and_back = (p_ - 1) * (t_.forward + t_.input_gradient + 2 * t_.message);
    return there_and_back + m_ * (t_.forward + t_.input_gradient) + (m_ - late + 1) * t_.weight_gradient;
  }

  // A forward that would be one too many waits for a whole round trip on the first rank, and where there is no room
  // beside it, for a weight gradient, or the next input gradient in its place.
  double rounds() const {
    const std::int32_t k = most_in_flight_;
    const bool room = memory_.w_share <= 0 || most_units(memory_.most - k, memory_.w_share) > 0;
    const double weights = k == 1 ? t_.weight_gradient : std::min(t_.weight_gradient, t_.input_gradient);
    const std::int32_t full_rounds = (m_ - 1) / k;
    return full_rounds * (round_trip(0) + (room ? 0 : weights)) + round_trip(0) + t_.weight_gradient;
  }

  // The activations that all microbatches hold over time, over those that may be held.
  double area() const { return m_ * (round_trip(0) + memory_.w_share * t_.weight_gradient) / memory_.most; }

 private:
  // Weight gradients that may be pending beside so many microbatches in flight.
  std::int32_t most_pending(std::int32_t in_flight) const {
    const std::int32_t others = m_ - in_flight;
    return memory_.w_share <= 0 ? others : std::min(others, most_units(memory_.most - in_flight, memory_.w_share));
  }

  // 0: none. With fewer than all microbatches the first backward comes before the last forward, so that the wait for
  // the one and that in the drain add up.
  std::int32_t fewest_forwards(double arrival, double most_idle, double drain) const {
    const auto at_least = [&](double idle) {
      return std::max<std::int32_t>(1, static_cast<std::int32_t>(std::ceil((arrival - idle) / t_.forward - kSame)));
    };
    if (drain <= most_idle + kSame) {
      const std::int32_t count = at_least(most_idle - drain);
      if (count <= most_in_flight_ && count < m_) return count;
    }
    return m_ <= most_in_flight_ && at_least(most_idle) <= m_ && drain <= most_idle + kSame ? m_ : 0;
  }

  std::int32_t p_;
  std::int32_t m_;
  const Times& t_;
  const MemoryLimit& memory_;
  std::int32_t most_in_flight_;
};

}  // namespace

std::int32_t most_units(double limit, double one) {
  constexpr double kMost = 1 << 30;
  return static_cast<std::int32_t>(std::floor(std::min(kMost, std::max(0.0, limit / one) + kSame)));
}

double least_own_span(const PipelineShape& shape, const Times& times, const MemoryLimit& memory) {
  const Bound bound(shape, times, memory);
  return std::max({bound.work() + bound.idle(), bound.through_last_rank(), bound.rounds(), bound.area()});
}

std::vector<std::int32_t> warm_up_forwards(const PipelineShape& shape, const Times& times, const MemoryLimit& memory,
                                           double most_idle) {
  return Bound(shape, times, memory).warm_up(most_idle);
}

}  // namespace lockstep::schedules
