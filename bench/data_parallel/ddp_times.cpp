#include "bench/data_parallel/ddp.h"

#include <algorithm>
#include <limits>

#include "core/error.h"
#include "schedules/step/buckets.h"
#include "schedules/step/rewrite.h"
#include "schedules/step/step.h"
#include "trainer/train/rank_steps.h"

namespace lockstep::parallel_bench {
namespace {

using schedules::Lane;
using schedules::Op;
using schedules::RankStep;
using schedules::StepTimeline;
using schedules::Task;
using schedules::TaskSpan;

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

namespace {

double ms_of(std::int64_t ps) {
  return static_cast<double>(ps) / 1e9;
}

bool is_backward(const Task& task) {
  return task.lane == Lane::compute &&
         (task.op == Op::backward || task.op == Op::input_gradient || task.op == Op::weight_gradient);
}

std::int64_t start_of(const StepTimeline& timeline) {
  std::int64_t start = std::numeric_limits<std::int64_t>::max();
  for (const auto& rank : timeline) {
    for (const TaskSpan& span : rank) start = std::min(start, span.start_ps);
  }
  return start;
}

// Spans of a rank's tasks in a lane, in their order.
std::vector<TaskSpan> spans_in(const RankStep& rank, const std::vector<TaskSpan>& spans, Lane lane) {
  std::vector<TaskSpan> found;
  for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
    if (rank.tasks[i].lane == lane) found.push_back(spans[i]);
  }
  return found;
}

// For each reduction of a rank, the index of the kernel that it waits for.
std::vector<std::size_t> kernels_before_buckets(const RankStep& rank) {
  std::vector<std::size_t> kernel_number(rank.tasks.size());
  std::vector<std::size_t> before;
  std::size_t kernels = 0;
  for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
    const Task& task = rank.tasks[i];
    if (task.lane == Lane::compute) kernel_number[i] = kernels++;
    if (task.lane != Lane::reduce) continue;
    LOCKSTEP_CHECK(task.num_after == 1, "a bucket waits for exactly one kernel");
    before.push_back(kernel_number[rank.after_of(task).front()]);
  }
  return before;
}

// Mean over ranks of each bucket's own time.
std::vector<double> transfers_ms(const schedules::Step& step, const StepTimeline& timeline) {
  std::vector<double> transfers;
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    const std::vector<TaskSpan> spans = spans_in(step.of_rank[r], timeline[r], Lane::reduce);
    transfers.resize(spans.size());
    for (std::size_t k = 0; k < spans.size(); ++k) {
      transfers[k] += ms_of(spans[k].end_ps - spans[k].start_ps) / static_cast<double>(timeline.size());
    }
  }
  return transfers;
}

}  // namespace

double backward_ms(const schedules::Step& kernels, const StepTimeline& timeline) {
  double sum = 0;
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    std::int64_t last = 0;
    for (std::size_t i = 0; i < timeline[r].size(); ++i) {
      const Task& task = kernels.of_rank[r].tasks[i];
      if (!is_backward(task) || task.microbatch != kernels.num_microbatches - 1) continue;
      first = std::min(first, timeline[r][i].start_ps);
      last = std::max(last, timeline[r][i].end_ps);
    }
    sum += ms_of(last - first);
  }
  return sum / static_cast<double>(timeline.size());
}

std::vector<double> ready_ms(const DdpSteps& steps, const StepTimeline& kernels) {
  const std::int64_t start = start_of(kernels);
  std::vector<double> ready;
  for (std::size_t r = 0; r < kernels.size(); ++r) {
    const std::vector<TaskSpan> spans = spans_in(steps.kernels.of_rank[r], kernels[r], Lane::compute);
    const std::vector<std::size_t> before = kernels_before_buckets(steps.overlapped.of_rank[r]);
    ready.resize(before.size());
    for (std::size_t k = 0; k < before.size(); ++k) {
      ready[k] = std::max(ready[k], ms_of(spans[before[k]].end_ps - start));
    }
  }
  return ready;
}

double predicted_ms(const DdpSteps& steps, const StepTimeline& kernels, const StepTimeline& collectives) {
  const std::vector<double> ready = ready_ms(steps, kernels);
  const std::vector<double> transfers = transfers_ms(steps.collectives, collectives);
  std::vector<schedules::BucketTimes> buckets;
  for (std::size_t k = 0; k < ready.size(); ++k) buckets.push_back({ready[k], transfers[k]});
  const double all_reduced_ms = schedules::end_of_buckets_ms(buckets);
  const std::int64_t start = start_of(kernels);
  double end_ms = 0;
  for (std::size_t r = 0; r < kernels.size(); ++r) {
    const std::vector<TaskSpan> spans = spans_in(steps.kernels.of_rank[r], kernels[r], Lane::compute);
    const TaskSpan update = spans.back();  // the optimizer's
    end_ms = std::max(
        end_ms, std::max(all_reduced_ms, ms_of(update.start_ps - start)) + ms_of(update.end_ps - update.start_ps));
  }
  return end_ms;
}

}  // namespace lockstep::parallel_bench
