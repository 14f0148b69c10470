// The file that nccl-tests writes under -J: its keys of version 3, so that scripts which read one read the other. Two
// differences: `env` is empty, as an environment holds secrets, and a result also says its ranks, transport and
// algorithm.
#pragma once

#include <memory>
#include <string>

#include "bench/sweep/session.h"
#include "bench/sweep/table.h"

namespace lockstep::sweep {

class NcclJson {
 public:
  // Like nccl-tests it replaces no file: PATH.0, PATH.1, ... are tried next. Throws Error if the folder is not
  // writable.
  explicit NcclJson(const std::string& path);
  ~NcclJson();

  const std::string& path() const;  // that is written

  // The first of several is kept, as there is one config. nccl_version: as ncclGetVersion has it; 0: none took part.
  void begin(const SweepFlags& flags, const Heading& heading, int nccl_version);
  void add(const Row& row, const Comparison& comparison, const SweepFlags& flags);
  void add_failure(const Row& row, const std::string& error);
  void finish(const Footing& footing);  // writes the file, whole or not at all

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::sweep
