#include "bench/sweep/perf_main.h"

int main(int argc, char** argv) {
  return lockstep::sweep::perf_main(lockstep::collectives::Kind::all_to_all, argc, argv);
}
