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

  // Time of a microbatch from its forward on rank r to the end of its input gradient there.
  double round_trip(std::int32_t r) const {
    return (p_ - r) * (t_.forward + t_.input_gradient) + 2 * (p_ - 1 - r) * t_.message;
  }

  // From the start of its last forward on, rank r runs the input gradients of the microbatches in flight and the
  // pending weight gradients; the memory limit bounds both. It waits for the rest of the last microbatch's round trip.
  double idle_of_drain(std::int32_t r) const {
    double most_work = 0;
    for (std::int32_t in_flight = 1; in_flight <= most_in_flight_; ++in_flight) {
      const std::int32_t left = in_flight + most_pending(in_flight);
      most_work = std::max(most_work, in_flight * t_.input_gradient + left * t_.weight_gradient);
    }
    return std::max(0.0, round_trip(r) + t_.weight_gradient - t_.forward - most_work);
  }

  // Forwards before the first backward, from the last rank to the first: each as few as keep the rank's waits within
  // `most_idle`, so that its first backward, and those of the ranks before it, are as early as possible.
  std::vector<std::int32_t> warm_up(double most_idle) const {
    std::vector<std::int32_t> forwards(static_cast<std::size_t>(p_));
    double first_backward = 0;  // relative to the start of the rank's first forward
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

  // Lower bound of the worst rank's waits in warm-up and drain.
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

  // The last rank's forwards and input gradients lie between the first forward's trip there and the last gradient's
  // trip back, as do the weight gradients that make room for its last forward.
  double through_last_rank() const {
    std::int32_t late = 0;
    for (std::int32_t in_flight = 1; in_flight <= most_in_flight_; ++in_flight) {
      late = std::max(late, in_flight + most_pending(in_flight));
    }
    const double there_and_back = (p_ - 1) * (t_.forward + t_.input_gradient + 2 * t_.message);
    return there_and_back + m_ * (t_.forward + t_.input_gradient) + (m_ - late + 1) * t_.weight_gradient;
  }

  // On the first rank, a forward beyond the memory limit waits for a whole round trip and, without further room, for a
  // weight gradient or the next input gradient.
  double rounds() const {
    const std::int32_t k = most_in_flight_;
    const bool room = memory_.w_share <= 0 || most_units(memory_.most - k, memory_.w_share) > 0;
    const double weights = k == 1 ? t_.weight_gradient : std::min(t_.weight_gradient, t_.input_gradient);
    const std::int32_t full_rounds = (m_ - 1) / k;
    return full_rounds * (round_trip(0) + (room ? 0 : weights)) + round_trip(0) + t_.weight_gradient;
  }

  // Activation-time that all microbatches need, divided by the activations that may be held.
  double area() const { return m_ * (round_trip(0) + memory_.w_share * t_.weight_gradient) / memory_.most; }

 private:
  // Weight gradients that may be pending beside that many microbatches in flight.
  std::int32_t most_pending(std::int32_t in_flight) const {
    const std::int32_t others = m_ - in_flight;
    return memory_.w_share <= 0 ? others : std::min(others, most_units(memory_.most - in_flight, memory_.w_share));
  }

  // 0: no such wait. With fewer than all microbatches in flight the first backward comes before the last forward, so
  // the wait for it and the wait in the drain add up.
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
