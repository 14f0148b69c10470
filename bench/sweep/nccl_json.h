// Writes nccl-tests' JSON file (-J) with the keys of its version 3, so that scripts for one read the other. Two
// differences: `env` is empty, as an environment may hold secrets, and each result also has its ranks, transport and
// algorithm.
#pragma once

#include <memory>
#include <string>

#include "bench/sweep/session.h"
#include "bench/sweep/table.h"

namespace lockstep::sweep {

class NcclJson {
 public:
  // Like nccl-tests, never replaces a file: tries PATH.0, PATH.1, ... next. Throws Error if the folder is not writable.
  explicit NcclJson(const std::string& path);
  ~NcclJson();

  const std::string& path() const;  // name of the file that will be written

  // Only the first call counts, as the file has one config. nccl_version: as ncclGetVersion returns it; 0 without NCCL.
  void begin(const SweepFlags& flags, const Heading& heading, int nccl_version);
  void add(const Row& row, const Comparison& comparison, const SweepFlags& flags);
  void add_failure(const Row& row, const std::string& error);
  void finish(const Footing& footing);  // writes the file completely or not at all

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::sweep
