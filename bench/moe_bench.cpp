#include "bench/experts/program.h"

int main(int argc, char** argv) {
  namespace bench = lockstep::experts_bench;
  return lockstep::program::exit_status_of("moe_bench", [&] {
    return bench::run_experts(bench::parse_experts_flags(argc, argv), lockstep::program::to_stdout);
  });
}
