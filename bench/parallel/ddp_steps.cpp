#include "bench/parallel/ddp_steps.h"

#include "schedules/passes/leave_out.h"
#include "schedules/step/check_step.h"
#include "trainer/train/rank_setup.h"

namespace lockstep::parallel_bench {
namespace {

using schedules::Lane;
using schedules::Task;

trainer::TrainStep made_with(const trainer::TrainOptions& options, bool overlap) {
  workload::Layout layout = options.layout;
  layout.overlap_gradients = overlap;
  return trainer::make_train_step(options.model, layout);
}

template <class LeftOut>
schedules::Step without(schedules::Step step, const LeftOut& left_out) {
  schedules::leave_out(step, left_out);
  schedules::check_step_or_throw(step);
  return step;
}

// Gradients are not clipped: PyTorch's DistributedDataParallel leaves clipping to the user.
bool is_norm(const Task& task) {
  return task.op == schedules::Op::optimizer && task.comm != schedules::Comm::none;
}

}  // namespace

DdpSteps ddp_steps(const trainer::TrainOptions& options) {
  DdpSteps steps;
  steps.made = made_with(options, true);
  steps.overlapped = without(steps.made.step, is_norm);
  steps.one_by_one = without(made_with(options, false).step, is_norm);
  steps.kernels = without(steps.overlapped, [](const Task& task) { return task.lane == Lane::reduce; });
  steps.collectives = without(steps.overlapped, [](const Task& task) { return task.lane == Lane::compute; });
  return steps;
}

}  // namespace lockstep::parallel_bench
