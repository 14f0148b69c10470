#include "testing/ptx/compiled_code.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "core/error.h"

namespace lockstep::ptx {
namespace {

struct Ran {
  int status;
  std::string text;  // both outputs
};
Ran run_tool(const std::string& command) {
  std::FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) throw core::Error(core::Failure::not_built, command + ": cannot be started");
  Ran ran{};
  std::array<char, 4096> bytes;
  for (std::size_t got = 0; (got = std::fread(bytes.data(), 1, bytes.size(), pipe)) > 0;) {
    ran.text.append(bytes.data(), got);
  }
  const int status = ::pclose(pipe);
  ran.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ran;
}

std::string target_of(const std::string& ptx_file) {
  std::ifstream in(ptx_file);
  for (std::string word; in >> word;) {
    if (word == ".target" && in >> word) return word.substr(0, word.find(','));
  }
  throw core::Error(core::Failure::usage, ptx_file + ": names no .target; allowed: PTX");
}

// A cubin that is removed when it is no longer needed.
struct Cubin {
  std::string path;
  explicit Cubin(const std::string& ptx_file)
      : path(fmt::format("{}/ptx_check_{}_{}.cubin", std::filesystem::temp_directory_path().string(), ::getpid(),
                         std::filesystem::path(ptx_file).stem().string())) {}
  Cubin(const Cubin&) = delete;
  Cubin& operator=(const Cubin&) = delete;
  ~Cubin() { std::remove(path.c_str()); }
};

bool is_memory(const std::string& operation) {
  static const std::set<std::string, std::less<>> kMemory{"LDG", "STG",    "LD",   "ST",  "LDS",
                                                          "STS", "LDGSTS", "LDSM", "RED", "ATOMG"};
  return kMemory.count(operation.substr(0, operation.find('.'))) > 0;
}

template <class T>
T median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// "LDG.E.128" of the line "  /*0010*/  @!P2 LDG.E.128 R4, desc[UR4][R2.64] ;"; empty of others.
std::string operation_of(const std::string& line) {
  const std::size_t begin = line.find_first_not_of(' ');
  const std::size_t end = line.find("*/");
  if (begin == std::string::npos || line.compare(begin, 2, "/*") != 0 || end == std::string::npos) return "";
  std::istringstream words(line.substr(end + 2));
  std::string word;
  while (words >> word && (word[0] == '@' || word == "{")) {
  }
  return word;
}

// How many copies the compiler made of a line: of an access each has one; of other lines each has its block.
struct Copies {
  std::map<int, int> accesses;
  std::map<int, int> blocks;
};
Copies copies_in(const std::vector<SassBlock>& blocks) {
  Copies copies;
  for (const SassBlock& block : blocks) {
    std::set<int> lines;
    for (const SassInstruction& one : block) {
      lines.insert(one.ptx_line);
      if (is_memory(one.operation)) ++copies.accesses[one.ptx_line];
    }
    for (const int line : lines) ++copies.blocks[line];
  }
  return copies;
}

}  // namespace

std::map<std::string, CompiledEntry> read_ptxas(const std::string& text) {
  static const std::regex kEntry("Function properties for (\\S+)");
  static const std::regex kSpills("(\\d+) bytes spill stores, (\\d+) bytes spill loads");
  static const std::regex kRegisters("Used (\\d+) registers");
  std::map<std::string, CompiledEntry> entries;
  CompiledEntry* entry = nullptr;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    std::smatch found;
    if (std::regex_search(line, found, kEntry)) {
      entry = &entries[found[1]];
    } else if (entry != nullptr && std::regex_search(line, found, kSpills)) {
      entry->spill_bytes = std::stoll(found[1]) + std::stoll(found[2]);
    } else if (entry != nullptr && std::regex_search(line, found, kRegisters)) {
      entry->registers = std::stoi(found[1]);
    }
  }
  return entries;
}

std::map<std::string, std::vector<SassBlock>> read_nvdisasm(const std::string& text) {
  std::map<std::string, std::vector<SassBlock>> entries;
  std::vector<SassBlock>* blocks = nullptr;
  int ptx_line = 0;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with(".text.") && line.ends_with(":")) {
      blocks = &entries[line.substr(6, line.size() - 7)];
      blocks->emplace_back();
      ptx_line = 0;
    } else if (line.starts_with("\t.section")) {
      if (line.find(".text.") == std::string::npos) blocks = nullptr;
    } else if (blocks == nullptr) {
      continue;
    } else if (line.starts_with(".L_x_")) {  // a jump leads here
      blocks->emplace_back();
    } else if (line.starts_with("\t//## File")) {
      ptx_line = std::stoi(line.substr(line.rfind(' ')));
    } else if (const std::string operation = operation_of(line); !operation.empty() && operation != "NOP") {
      blocks->back().push_back({operation, ptx_line});
      if (operation.starts_with("BRA") || operation.starts_with("EXIT")) blocks->emplace_back();
    }
  }
  return entries;
}

std::map<std::string, CompiledEntry> compiled(const std::string& ptx_file, const std::vector<std::string>& entries) {
  const Cubin cubin(ptx_file);
  std::string names;
  for (const std::string& name : entries) names += (names.empty() ? "" : ",") + name;
  const Ran ran = run_tool(fmt::format("'{}' -v -lineinfo -arch={} -e '{}' -o '{}' '{}'", LOCKSTEP_PTXAS,
                                       target_of(ptx_file), names, cubin.path, ptx_file));
  if (ran.status != 0) throw core::Error(core::Failure::not_built, ptx_file + ": ptxas failed: " + ran.text);
  std::map<std::string, CompiledEntry> all = read_ptxas(ran.text);
  const Ran disassembled = run_tool(fmt::format("nvdisasm -c -gp '{}'", cubin.path));
  if (disassembled.status == 0) {
    for (auto& [name, blocks] : read_nvdisasm(disassembled.text)) all[name].sass = std::move(blocks);
  }
  return all;
}

SassCounts executed_sass(const std::vector<SassBlock>& blocks, const std::map<int, std::uint64_t>& executed_by_line) {
  const Copies copies = copies_in(blocks);
  SassCounts counts;
  for (const SassBlock& block : blocks) {
    std::vector<double> runs;      // the block's, by all instructions
    std::vector<double> accesses;  // the same, by accesses to memory
    double special = 0;
    for (const SassInstruction& one : block) {
      if (one.operation.starts_with("MUFU")) ++special;
      const auto executed = executed_by_line.find(one.ptx_line);
      if (executed == executed_by_line.end()) continue;
      const auto times = static_cast<double>(executed->second);
      runs.push_back(times / copies.blocks.at(one.ptx_line));
      if (is_memory(one.operation)) accesses.push_back(times / copies.accesses.at(one.ptx_line));
    }
    if (runs.empty()) continue;
    const double times = median(accesses.empty() ? runs : accesses);
    counts.instructions += times * static_cast<double>(block.size());
    counts.special += times * special;
  }
  return counts;
}

}  // namespace lockstep::ptx
