#include "bench/scaling/program.h"

int main(int argc, char** argv) {
  return lockstep::scaling::scaling_main(argc, argv);
}
