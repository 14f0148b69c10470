#include "bench/pipeline/program.h"

int main(int argc, char** argv) {
  return lockstep::pipeline::pipeline_main(argc, argv);
}
