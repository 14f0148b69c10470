// gate_planted alone|collective --serve: a worker of known speed, which LOCKSTEP_PLANTED_PERCENT makes slower by as
// much. Only the tests of the regression gate use it (ci/gate_selftest.py).
#include <cstdio>
#include <cstring>

#include "bench/gate/planted.h"
#include "core/error.h"

int main(int argc, char** argv) {
  try {
    if (argc != 3 || std::strcmp(argv[2], "--serve") != 0) {
      throw lockstep::core::usage_error("wrong arguments; allowed: alone --serve, collective --serve");
    }
    return lockstep::gate::serve_planted(argv[1]);
  } catch (const lockstep::core::Error& error) {
    std::fprintf(stderr, "gate_planted: %s\n", error.what());
    return error.exit_status();
  }
}
