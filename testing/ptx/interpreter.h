// Executes the kernels that a program launches through the stand-in for CUDA's runtime: the compiled PTX of each entry,
// from a folder of .ptx files (CMake target lockstep_ptx).
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "testing/cuda_stand_in/launch.h"
#include "testing/ptx/machine.h"

namespace lockstep::ptx {

// Mangled names of entries in anonymous namespaces contain hashes of how they were compiled; this replaces them by
// zeros.
std::string name_without_hashes(std::string name);

// All entries of some PTX files.
class Library {
 public:
  // Throws an Error if the folder has no .ptx file.
  static Library read(const std::string& folder);
  const std::string& folder() const { return folder_; }
  std::vector<std::string> entry_names() const;  // without hashes
  std::shared_ptr<const Entry> entry(const std::string& name);
  std::string file_of(const std::string& name) const;  // "softmax"
  std::string path_of(const std::string& name) const;

 private:
  struct Where {
    std::size_t module;
    std::string name;  // in the module
  };
  std::string folder_;
  std::vector<std::string> files_;
  std::vector<Module> modules_;
  std::map<std::string, Where> entries_;
};

// All launches of an entry.
struct EntryRuns {
  int launches = 0;
  cuda_stand_in::Launch last = {};
  Counts counts = {};
  std::vector<std::uint64_t> executed = {};  // by warps, each operation of its program
};

// Changes an entry before it runs: a deliberate mistake.
using Change = std::function<std::shared_ptr<const Entry>(std::shared_ptr<const Entry>)>;

class Interpreter final : public cuda_stand_in::Executor {
 public:
  Interpreter(Library& library, const Options& options) : library_(library), machine_(options) {}

  std::optional<cuda_stand_in::KernelFacts> facts_of(const std::string& kernel) override;
  void begin(const cuda_stand_in::Launch& launch) override;
  std::vector<std::uint64_t> run() override;
  void on_allocated(std::uintptr_t begin, std::size_t size_bytes) override;
  void on_freed(std::uintptr_t begin, std::size_t size_bytes) override;
  void on_written(std::uintptr_t begin, std::size_t size_bytes) override;

  // Kernels that begin from now on are those of the change.
  void set_change(Change change);
  // Returns the fault of the last kernel that failed; "" if none has.
  const std::string& fault() const { return fault_; }
  GlobalMemory& memory() { return machine_.memory(); }
  bool reached_mutant() const { return machine_.reached_mutant(); }
  // All that entries have done so far, by their names without hashes.
  const std::map<std::string, EntryRuns>& runs() const { return runs_; }

 private:
  std::shared_ptr<const Program> program_of(const std::string& kernel);

  Library& library_;
  Machine machine_;
  Change change_;
  std::string fault_;
  std::map<std::string, std::shared_ptr<const Program>> programs_;
  std::map<std::uint64_t, cuda_stand_in::Launch> running_;
  std::map<std::string, EntryRuns> runs_;
};

}  // namespace lockstep::ptx
