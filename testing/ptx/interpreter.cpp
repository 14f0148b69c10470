#include "testing/ptx/interpreter.h"

#include <algorithm>
#include <cctype>
#include <filesystem>

#include "core/error.h"

namespace lockstep::ptx {
namespace {

constexpr int kTurns = 4;  // rounds of the machine between two looks at what the host has queued
constexpr int kHashDigits = 8;

// Replaces the hexadecimal digits after each `before`.
void clear_hashes(std::string& name, std::string_view before) {
  for (std::size_t at = name.find(before); at != std::string::npos; at = name.find(before, at + 1)) {
    for (std::size_t i = at + before.size(); i < std::min(name.size(), at + before.size() + kHashDigits); ++i) {
      if (std::isxdigit(static_cast<unsigned char>(name[i])) == 0) break;
      name[i] = '0';
    }
  }
}

void add(EntryRuns& runs, const cuda_stand_in::Launch& launch, const Machine::Ended& ended) {
  ++runs.launches;
  runs.last = launch;
  runs.counts += ended.counts;
  runs.executed.resize(ended.executed.size());
  for (std::size_t i = 0; i < ended.executed.size(); ++i) runs.executed[i] += ended.executed[i];
}

}  // namespace

std::string name_without_hashes(std::string name) {
  clear_hashes(name, "_GLOBAL__N__");
  clear_hashes(name, "_INTERNAL_");
  clear_hashes(name, "_cu_");
  return name;
}

Library Library::read(const std::string& folder) {
  Library library;
  library.folder_ = folder;
  std::vector<std::filesystem::path> paths;
  if (std::filesystem::is_directory(folder)) {
    for (const auto& file : std::filesystem::directory_iterator(folder)) {
      if (file.path().extension() == ".ptx") paths.push_back(file.path());
    }
  }
  if (paths.empty()) {
    throw core::Error(core::Failure::usage,
                      folder + ": has no .ptx file; they are made by the CMake target lockstep_ptx");
  }
  std::sort(paths.begin(), paths.end());
  for (const auto& path : paths) {
    library.modules_.push_back(Module::read(path.string()));
    for (const std::string& name : library.modules_.back().entry_names()) {
      library.entries_[name_without_hashes(name)] = {library.files_.size(), name};
    }
    library.files_.push_back(path.string());
  }
  return library;
}

std::vector<std::string> Library::entry_names() const {
  std::vector<std::string> names;
  for (const auto& [name, where] : entries_) names.push_back(name);
  return names;
}

std::string Library::file_of(const std::string& name) const {
  return std::filesystem::path(files_[entries_.at(name).module]).stem().string();
}

std::string Library::path_of(const std::string& name) const {
  return files_[entries_.at(name).module];
}

std::shared_ptr<const Entry> Library::entry(const std::string& name) {
  const auto found = entries_.find(name_without_hashes(name));
  if (found == entries_.end()) return nullptr;
  return modules_[found->second.module].entry(found->second.name);
}

void Interpreter::set_change(Change change) {
  change_ = std::move(change);
  programs_.clear();
}

std::shared_ptr<const Program> Interpreter::program_of(const std::string& kernel) {
  std::shared_ptr<const Program>& program = programs_[kernel];
  if (program == nullptr) {
    std::shared_ptr<const Entry> entry = library_.entry(kernel);
    if (entry == nullptr) return nullptr;
    if (change_) entry = change_(entry);
    program = std::make_shared<const Program>(entry);
  }
  return program;
}

std::optional<cuda_stand_in::KernelFacts> Interpreter::facts_of(const std::string& kernel) {
  const std::shared_ptr<const Entry> entry = library_.entry(kernel);
  if (entry == nullptr) return std::nullopt;
  cuda_stand_in::KernelFacts facts;
  for (const Parameter& parameter : entry->parameters)
    facts.parameters.push_back({parameter.offset, parameter.size_bytes});
  facts.static_shared_bytes = entry->static_shared_bytes();
  facts.registers = 0;
  if (entry->most_threads > 0) facts.most_threads = entry->most_threads;
  return facts;
}

void Interpreter::begin(const cuda_stand_in::Launch& launch) {
  const std::shared_ptr<const Program> program = program_of(launch.kernel);
  machine_.begin(launch, program);
  running_[launch.number] = launch;
}

std::vector<std::uint64_t> Interpreter::run() {
  std::vector<std::uint64_t> numbers;
  try {
    for (const Machine::Ended& ended : machine_.run(kTurns)) {
      numbers.push_back(ended.number);
      const auto launch = running_.extract(ended.number);
      add(runs_[name_without_hashes(launch.mapped().kernel)], launch.mapped(), ended);
    }
  } catch (const std::exception& error) {
    fault_ = error.what();
    machine_.reset();
    running_.clear();
    throw;
  }
  return numbers;
}

// Addresses of the device are those of this process.
// NOLINTBEGIN(performance-no-int-to-ptr)
void Interpreter::on_allocated(std::uintptr_t begin, std::size_t size_bytes) {
  machine_.memory().add(reinterpret_cast<void*>(begin), size_bytes, false);
}
void Interpreter::on_freed(std::uintptr_t begin, std::size_t /*size_bytes*/) {
  machine_.memory().remove(reinterpret_cast<void*>(begin));
}
void Interpreter::on_written(std::uintptr_t begin, std::size_t size_bytes) {
  machine_.memory().set_initialized(reinterpret_cast<const void*>(begin), size_bytes);
}
// NOLINTEND(performance-no-int-to-ptr)

}  // namespace lockstep::ptx
