// Four of Lockstep's libraries in a program of one's own: a plan is made, proved and counted; a schedule is checked; a
// training step is predicted; a kernel runs on the CPU.
#include <cmath>
#include <cstdio>
#include <vector>

#include "collectives/algorithms/algorithm.h"
#include "collectives/plan/check.h"
#include "collectives/plan/cost.h"
#include "core/error.h"
#include "kernels/activation/activation.h"
#include "kernels/base/context.h"
#include "schedules/generators/catalogue.h"
#include "schedules/schedule.h"
#include "simulator/predict/predict.h"

using namespace lockstep;  // as a short program may

// A ring all-reduce of 8 ranks: what it sends per rank, if the checker finds no mistake in it.
void show_plan() {
  const auto kind = collectives::Kind::all_reduce;
  const plan::Plan ring = algorithms::make_plan(algorithms::parse_choice(kind, "ring"), /*num_ranks=*/8, /*root=*/0);
  const plan::CheckResult proof = plan::check(ring);
  if (!proof.ok()) throw core::usage_error(proof.text());
  const collectives::Operation operation{.kind = kind, .count = 1 << 20};
  const plan::Counts counts = plan::count(ring, proof.contents, operation);
  std::printf("ring: %d steps, %lld bytes per rank\n", counts.steps,
              static_cast<long long>(counts.busiest().bytes_sent));
}

void show_schedule() {
  const schedules::Schedule zb_h1 = schedules::make_schedule("zb_h1", {.ranks = 4, .microbatches = 8});
  schedules::check_or_throw(zb_h1);
  std::printf("zb_h1: %zu actions on rank 0\n", zb_h1.of_rank[0].size());
}

void show_step() {
  const simulator::Prediction step =
      simulator::predict(workload::parse_model("gpt3-13b"), workload::parse_layout("tp=8,pp=2,dp=4,batch=64"),
                         simulator::load_machine("dgx-a100"));
  std::printf("step: %.0f ms, %.0f %% of the peak\n", step.step_s * 1e3, step.mfu * 100);
}

void run_kernel() {
  std::vector<float> x(1000, 1.0F);
  std::vector<float> y(x.size());
  const auto count = static_cast<std::int64_t>(x.size());
  kernels::ThreadPool threads(1);
  kernels::run(
      kernels::GeluForward{
          .count = count, .x = {x.data(), core::DType::f32, count}, .y = {y.data(), core::DType::f32, count}},
      kernels::Context(threads));
  if (std::abs(y.back() - 0.8412F) > 1e-3F) throw core::usage_error("GELU of 1 is not 0.8412");
  std::printf("gelu(1): %.4f\n", static_cast<double>(y.back()));
}

int main() {
  try {
    show_plan();
    show_schedule();
    show_step();
    run_kernel();
    return 0;
  } catch (const core::Error& error) {
    std::fprintf(stderr, "use_lockstep: %s\n", error.what());
    return error.exit_status();
  }
}
