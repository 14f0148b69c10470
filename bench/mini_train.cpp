#include "bench/trainer/program.h"

int main(int argc, char** argv) {
  return lockstep::mini_train::mini_train_main(argc, argv);
}
