#include "schedules/generators/closed_forms.h"

#include <algorithm>
#include <cmath>

namespace lockstep::schedules {
namespace {

// Time of a microbatch on a rank.
double whole(const Times& times) {
  return times.forward + times.input_gradient + times.weight_gradient;
}
double full_backward(const Times& times) {
  return times.input_gradient + times.weight_gradient;
}
bool are_equal(const Times& times) {
  return times.forward == times.input_gradient && times.forward == times.weight_gradient;
}

// True if all slices of a microbatch take equal times, forward and backward.
bool take_equal_times(const PipelineShape& shape, const Times& times) {
  for (const Op op : {Op::forward, Op::backward}) {
    const double first = time_of({op, 0, 0}, times, 1, shape.slice_tokens);
    for (std::int32_t slice = 1; slice < shape.slices(); ++slice) {
      if (std::abs(time_of({op, 0, slice}, times, 1, shape.slice_tokens) - first) > 1e-9 * first) return false;
    }
  }
  return true;
}

ClosedForm makespan(const PipelineShape& shape, const Times& times, double bubble) {
  return {true, shape.microbatches * whole(times) + bubble};
}
ClosedForm own_span(const PipelineShape& shape, const Times& times, double bubble) {
  return {false, shape.microbatches * whole(times) + bubble};
}

}  // namespace

std::optional<ClosedForm> fill_and_drain(const PipelineShape& shape, const Times& times) {
  return makespan(shape, times, (shape.ranks - 1) * whole(times));
}

// A flow shop of identical machines: the sum of all slices, plus the longest slice for each stage but one (Li et al.
// 2021, section 3.3), first forward, then backward.
std::optional<ClosedForm> of_slices_filled_and_drained(const PipelineShape& shape, const Times& times) {
  double forward = 0;
  double backward = 0;
  for (std::int32_t slice = 0; slice < shape.slices(); ++slice) {
    forward = std::max(forward, time_of({Op::forward, 0, slice}, times, 1, shape.slice_tokens));
    backward = std::max(backward, time_of({Op::backward, 0, slice}, times, 1, shape.slice_tokens));
  }
  return makespan(shape, times, (shape.ranks - 1) * (forward + backward));
}

std::optional<ClosedForm> of_seq1f1b(const PipelineShape& shape, const Times& times) {
  if (!take_equal_times(shape, times)) return std::nullopt;
  return makespan(shape, times, (shape.ranks - 1) * whole(times) / shape.slices());
}

std::optional<ClosedForm> of_seq1f1b_i(const PipelineShape& shape, const Times& times) {
  if (!take_equal_times(shape, times) || shape.microbatches * shape.slices() % shape.ranks != 0) return std::nullopt;
  return makespan(shape, times, (shape.ranks - 1) * whole(times) / (shape.chunks * shape.slices()));
}

std::optional<ClosedForm> of_chunks_in_groups(const PipelineShape& shape, const Times& times) {
  if (shape.microbatches % shape.ranks != 0) return std::nullopt;
  return makespan(shape, times, (shape.ranks - 1) * whole(times) / shape.chunks);
}

std::optional<ClosedForm> of_breadth_first(const PipelineShape& shape, const Times& times) {
  if (shape.microbatches < shape.ranks) return std::nullopt;
  return makespan(shape, times, (shape.ranks - 1) * whole(times) / shape.chunks);
}

std::optional<ClosedForm> of_zb_h1(const PipelineShape& shape, const Times& times) {
  if (times.weight_gradient > times.forward || shape.microbatches < shape.ranks) return std::nullopt;
  return makespan(shape, times, (shape.ranks - 1) * (times.forward + times.input_gradient - times.weight_gradient));
}

std::optional<ClosedForm> of_interleaved_zb(const PipelineShape& shape, const Times& times) {
  if (shape.microbatches % shape.ranks != 0) return std::nullopt;
  auto form = of_zb_h1(shape, times);
  const double work = shape.microbatches * whole(times);
  if (form) form->cost = work + (form->cost - work) / shape.chunks;
  return form;
}

std::optional<ClosedForm> of_zb_h2(const PipelineShape& shape, const Times& times) {
  const bool short_weights = times.weight_gradient <= std::min(times.forward, times.input_gradient);
  if (!short_weights || shape.microbatches < 2 * shape.ranks - 1) return std::nullopt;
  return own_span(shape, times, (shape.ranks - 1) * (times.forward + times.input_gradient - 2 * times.weight_gradient));
}

std::optional<ClosedForm> of_zb_v(const PipelineShape& shape, const Times& times) {
  if (!are_equal(times) || shape.microbatches < 2 * shape.ranks - 1) return std::nullopt;
  return own_span(shape, times, 0);
}

std::optional<ClosedForm> of_dualpipe(const PipelineShape& shape, const Times& times) {
  if (!are_equal(times)) return std::nullopt;
  const double fused = times.forward + full_backward(times);
  const std::int32_t inner = shape.ranks / 2 - 1;
  return makespan(shape, times, inner * (fused + full_backward(times) - 3 * times.weight_gradient));
}

std::optional<ClosedForm> of_dualpipe_v(const PipelineShape& shape, const Times& times) {
  if (!are_equal(times)) return std::nullopt;
  const double fused = times.forward + full_backward(times);
  return makespan(shape, times, (shape.ranks - 1) * (fused + full_backward(times) - 3 * times.weight_gradient) / 2);
}

std::optional<ClosedForm> of_chimera(const PipelineShape& shape, const Times& times) {
  const int units = shape.microbatches / shape.ranks;
  if (full_backward(times) == times.forward) return makespan(shape, times, (shape.ranks - 2) * times.forward);
  if (full_backward(times) != 2 * times.forward) return std::nullopt;
  return makespan(shape, times, (units + 1) * (shape.ranks - 2) * times.forward);
}

std::optional<ClosedForm> of_chimera_doubled(const PipelineShape& shape, const Times& times) {
  if (full_backward(times) != 2 * times.forward) return std::nullopt;
  return makespan(shape, times, (shape.ranks - 2) * full_backward(times));
}

std::optional<ClosedForm> of_naive(const PipelineShape& shape, const Times& times) {
  return ClosedForm{true, shape.microbatches * shape.ranks * whole(times)};
}

std::optional<ClosedForm> none_known(const PipelineShape& /*shape*/, const Times& /*times*/) {
  return std::nullopt;
}

}  // namespace lockstep::schedules
