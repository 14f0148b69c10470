#include "testing/ptx/count_record.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "core/provenance.h"
#include "core/record_json.h"
#include "testing/cuda_stand_in/gpu.h"
#include "testing/cuda_stand_in/limits.h"

namespace lockstep::ptx {
namespace {

using core::Json;

constexpr const char* kWorkNames[] = {"integer", "real",    "special", "convert", "move",
                                      "memory",  "control", "barrier", "tensor"};
static_assert(std::size(kWorkNames) == std::size_t{kWorks});

void remove_all(std::string& text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at)) text.erase(at, part.size());
}

// Where the parameters begin: the last '(' outside of "<...>".
std::size_t parameters_of(const std::string& text) {
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    depth += text[i] == '<' ? 1 : text[i] == '>' ? -1 : 0;
    if (depth == 0 && text[i] == '(') return i;
  }
  return text.size();
}

Json extent_of(const cuda_stand_in::Extent& extent) {
  return {extent.x, extent.y, extent.z};
}

int resident_blocks(const Entry& entry, const EntryRuns& runs, const CompiledEntry& compiled) {
  cuda_stand_in::KernelFacts facts;
  facts.static_shared_bytes = entry.static_shared_bytes();
  facts.registers = compiled.registers;
  return blocks_per_multiprocessor(facts, static_cast<unsigned>(runs.last.block.count()),
                                   runs.last.dynamic_shared_bytes);
}

}  // namespace

std::string short_name_of(const std::string& mangled) {
  const std::unique_ptr<char, void (*)(void*)> found(abi::__cxa_demangle(mangled.c_str(), nullptr, nullptr, nullptr),
                                                     std::free);
  if (found == nullptr) return mangled;
  std::string text = found.get();
  for (const char* part : {"lockstep::kernels::", "lockstep::", "(anonymous namespace)::"}) remove_all(text, part);
  text.resize(parameters_of(text));
  if (text.starts_with("void ")) text.erase(0, 5);
  for (std::size_t at = text.find("> >"); at != std::string::npos; at = text.find("> >")) text.erase(at + 1, 1);
  return text;
}

std::map<int, std::uint64_t> executed_by_line(const Entry& entry, const EntryRuns& runs) {
  std::map<int, std::uint64_t> executed;
  for (std::size_t i = 0; i < runs.executed.size(); ++i) executed[entry.instructions[i].line] += runs.executed[i];
  return executed;
}

std::string count_line(const std::string& run, const DeclaredWork& work, const Entry& entry, const EntryRuns& runs,
                       const CompiledEntry& compiled) {
  const Counts& counts = runs.counts;
  const int blocks = resident_blocks(entry, runs, compiled);
  Json json{{"record", "kernel_count"},
            {"run", run},
            {"kernel", work.kernel},
            {"shape", work.shape},
            {"dtype", work.dtype},
            {"choice", work.choice},
            {"elems", work.elems},
            {"bytes", work.bytes},
            {"flops", work.flops},
            {"entry", short_name_of(name_without_hashes(entry.name))},
            {"launches", runs.launches},
            {"grid", extent_of(runs.last.grid)},
            {"block", extent_of(runs.last.block)},
            {"cluster", extent_of(runs.last.cluster)},
            {"static_shared_bytes", entry.static_shared_bytes()},
            {"dynamic_shared_bytes", runs.last.dynamic_shared_bytes},
            {"registers", compiled.registers},
            {"spill_bytes", compiled.spill_bytes},
            {"resident_blocks", blocks},
            {"resident_threads", static_cast<std::uint64_t>(blocks) * runs.last.block.count()},
            {"warp_instructions", counts.warp_instructions}};
  json["instructions"] = Json::object();
  for (std::size_t i = 0; i < std::size(kWorkNames); ++i) {
    if (counts.instructions[i] > 0) json["instructions"][kWorkNames[i]] = counts.instructions[i];
  }
  json["global_requests"] = counts.global_requests;
  json["global_sectors"] = counts.global_sectors;
  json["global_bytes"] = counts.global_bytes_read + counts.global_bytes_written;
  json["shared_requests"] = counts.shared_requests;
  json["shared_wavefronts"] = counts.shared_wavefronts;
  json["shared_wavefronts_least"] = counts.shared_wavefronts_least;
  json["by_atomics"] = std::any_of(entry.instructions.begin(), entry.instructions.end(),
                                   [](const Instruction& one) { return one.opcode.starts_with("atom."); });
  json["multiply_adds"] = counts.products;
  json["sass"] = nullptr;
  if (compiled.sass) {
    const SassCounts sass = executed_sass(*compiled.sass, executed_by_line(entry, runs));
    json["sass"] = {{"instructions", kLanes * sass.instructions}, {"special", kLanes * sass.special}};
  }
  return core::line_of(json);
}

RunLine run_line(std::uint64_t seed) {
  core::RunRecord run = core::new_run("ptx_check", {"ptx_check", "counts"});
  run.basis = "simulated";
  run.seed = static_cast<std::int64_t>(seed);
  return {core::to_json(run), run.run};
}

}  // namespace lockstep::ptx
