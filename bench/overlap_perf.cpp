#include "bench/pipeline/overlap_program.h"

int main(int argc, char** argv) {
  return lockstep::pipeline::overlap_main(argc, argv);
}
