#include "bench/experts/program.h"

int main(int argc, char** argv) {
  using namespace lockstep;
  return program::exit_status_of("moe_bench", [&] {
    return experts_bench::run_experts(experts_bench::parse_experts_flags(argc, argv), program::to_stdout);
  });
}
