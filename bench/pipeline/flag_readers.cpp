#include "bench/pipeline/flag_readers.h"

namespace lockstep::pipeline {

using sweep::FlagValue;

Mode mode_of(const FlagValue& value) {
  if (value.text == "simulated") return Mode::simulated;
  if (value.text == "emulated") return Mode::emulated;
  if (value.text == "real") return Mode::real;
  throw value.refused("unknown mode", "simulated emulated real");
}

std::string file_name(const FlagValue& value) {
  if (value.text.empty()) throw value.refused("no name", "the name of a file");
  return value.text;
}

}  // namespace lockstep::pipeline
