#include "bench/simulate/program.h"

int main(int argc, char** argv) {
  return lockstep::simulate::simulate_main(argc, argv);
}
