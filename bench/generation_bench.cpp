// generation_bench --serve: a worker that makes, checks and lowers plans and schedules (bench/gate/generation.h), for
// ci/gate.py, which counts instructions or times it.
#include <cstdio>
#include <cstring>

#include "bench/gate/generation.h"
#include "bench/serve/orders.h"
#include "core/error.h"

int main(int argc, char** argv) {
  namespace core = lockstep::core;
  namespace gate = lockstep::gate;
  namespace serve = lockstep::serve;
  try {
    if (argc != 2 || std::strcmp(argv[1], "--serve") != 0) throw core::usage_error("wrong arguments; allowed: --serve");
    const std::vector<gate::GenerationCase> cases = gate::generation_cases();
    std::vector<std::string> names;
    for (const gate::GenerationCase& one : cases) names.push_back(one.name);
    serve::Orders orders("generation_bench", names);
    serve::serve(orders,
                 [&](std::size_t index, std::int64_t calls) { return serve::us_of_calls(calls, cases[index].run); });
    return 0;
  } catch (const core::Error& error) {
    std::fprintf(stderr, "generation_bench: %s\n", error.what());
    return error.exit_status();
  }
}
