#include "bench/parallel/ddp_program.h"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bench/parallel/ddp_records.h"
#include "bench/parallel/ddp_run.h"
#include "bench/parallel/ddp_steps.h"
#include "bench/parallel/ddp_text.h"
#include "bench/serve/orders.h"
#include "bench/trainer/text.h"
#include "collectives/transports/mpi_transport.h"
#include "core/device_cpu.h"
#include "core/error.h"
#include "trainer/step/memory_need.h"
#include "trainer/train/rank_setup.h"

namespace lockstep::parallel_bench {

namespace {

bool tells(const DdpFlags& flags) {
  const transports::MpiWorld* const mpi = flags.step.options.mpi;
  return mpi == nullptr || mpi->placement().rank == 0;
}

// Refuses what cannot be run, before anything is printed.
void check(const DdpFlags& flags, const DdpCase& one) {
  const trainer::TrainOptions options = options_of(flags, one);
  if (options.mpi != nullptr) return;
  trainer::check_memory(ddp_steps(options).made, options.model, options.layout,
                        static_cast<std::int64_t>(core::available_host_bytes()));
}

int serve_row(const DdpFlags& flags) {
  if (flags.mpi) throw core::usage_error("--serve together with --transport mpi; allowed: --transport local");
  const std::vector<DdpCase> cases = ddp_cases(flags);
  serve::check_one(cases.size(), "row");
  check(flags, cases.front());
  serve_ddp(flags, cases.front());
  return 0;
}

int run_on(DdpFlags flags, transports::MpiWorld& mpi) {
  flags.step.options.mpi = &mpi;
  if (flags.all_ranks) flags.step.replicas = {mpi.placement().num_ranks};
  return run_ddp_overlap(
      flags, tells(flags) ? program::Print(program::to_stdout) : [](const std::string&) {});
}

}  // namespace

int run_ddp_overlap(const DdpFlags& flags, const program::Print& print) {
  const std::vector<DdpCase> cases = ddp_cases(flags);
  for (const DdpCase& one : cases) check(flags, one);
  core::RecordWriter writer(tells(flags) ? flags.step.json_file : "");
  print(mini_train::mpi_text(options_of(flags, cases.front())));
  print(ddp_heading_text(flags));
  std::vector<DdpResult> results;
  bool wrong = false;
  for (const DdpCase& one : cases) {
    results.push_back(run_ddp(flags, one));
    if (!tells(flags)) continue;
    print(ddp_row_text(flags, one, results.back()));
    wrong = wrong || !results.back().is_right();
    if (writer.is_open()) write_ddp_records(writer, flags, one, results.back());
  }
  if (!tells(flags)) return 0;
  print(ddp_ending_text(cases, results));
  writer.commit();
  return wrong ? static_cast<int>(core::Failure::wrong_data) : 0;
}

int run_ddp_program(const DdpFlags& flags, int argc, char** argv) {
  if (flags.step.serve) return serve_row(flags);
  if (!flags.mpi) return run_ddp_overlap(flags, program::to_stdout);
  const auto run = [&](transports::MpiWorld& mpi) { return run_on(flags, mpi); };
  return transports::run_mpi_program(argc, argv, flags.step.options.timeout, run, flags.mpi_threads);
}

}  // namespace lockstep::parallel_bench
