#include "core/provenance.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>

#include "core/cores.h"
#include "core/random.h"
#include "core/size.h"

namespace lockstep::core {
namespace {

// Returns the first line of a small file of the kernel.
std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) || line.empty()) return std::nullopt;
  return line;
}

// Returns X of the first processor's line "<field> : X".
std::optional<std::string> cpuinfo(const std::string& field) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with(field) && colon != std::string::npos) return line.substr(colon + 2);
  }
  return std::nullopt;
}

// Returns the size of the first core's data or unified cache of this level.
std::optional<std::int64_t> cache_bytes(const std::string& level) {
  for (int index = 0;; ++index) {
    const std::string folder = fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/", index);
    const auto found = first_line(folder + "level");
    if (!found) return std::nullopt;
    if (*found == level && first_line(folder + "type") != "Instruction") {
      return parse_size(first_line(folder + "size").value_or(""));
    }
  }
}

std::optional<double> number(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  const double value = std::strtod(text->c_str(), nullptr);
  return value > 0 ? std::optional(value) : std::nullopt;
}

std::optional<double> clock_mhz() {
  if (const auto khz = number(first_line("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq"))) return *khz / 1e3;
  return number(cpuinfo("cpu MHz"));
}

std::optional<std::int64_t> memory_bytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page_bytes <= 0) return std::nullopt;
  return std::int64_t{pages} * page_bytes;
}

std::string kernel() {
  utsname names{};
  uname(&names);  // it also holds the host's name, which is not used
  return fmt::format("{} {}", names.sysname, names.release);
}

std::string hex(std::uint64_t value) {
  return fmt::format("{:016x}", value);
}

std::uint64_t hash_of(const std::string& text) {
  std::uint64_t hash = mix64(text.size());
  for (char c : text) hash = mix64(hash ^ static_cast<unsigned char>(c));
  return hash;
}

// Turns "/home/someone/out/r.jsonl" into "r.jsonl".
std::string without_folders(const std::string& path) {
  if (path.empty() || (path.front() != '/' && path.front() != '~')) return path;
  return path.substr(path.find_last_of('/') + 1);
}

}  // namespace

Machine this_machine() {
  Machine machine;
  machine.cpu = cpuinfo("model name");
  machine.cores = usable_cores();
  machine.memory_bytes = memory_bytes();
  machine.kernel = kernel();
  machine.caches = {cache_bytes("1"), cache_bytes("2"), cache_bytes("3")};
  machine.mhz = clock_mhz();
  return machine;
}

std::string fingerprint(const Machine& machine) {
  const auto bytes = [](const std::optional<std::int64_t>& size) { return size.value_or(-1); };
  std::string text =
      fmt::format("{}|{}|{}|{}|{}|{}|{}|{}", machine.cpu.value_or(""), machine.cores, bytes(machine.memory_bytes),
                  machine.kernel.value_or(""), bytes(machine.caches.l1d_bytes), bytes(machine.caches.l2_bytes),
                  bytes(machine.caches.l3_bytes), machine.hosts);
  for (const std::string& gpu : machine.gpus) text += "|" + gpu;
  return hex(hash_of(text));
}

RunRecord new_run(const std::string& program, const std::vector<std::string>& command) {
  return {.run = new_run_id(),
          .program = program,
          .command = command,
          .started = utc_now(),
          .git = source(),
          .build = build(),
          .machine = this_machine(),
          .transport = "local",
          .rank_kind = "threads"};
}

std::vector<std::string> public_command(const std::vector<std::string>& command) {
  std::vector<std::string> shown;
  for (const std::string& word : command) {
    const std::size_t value = word.starts_with("--") ? word.find('=') : std::string::npos;
    if (value == std::string::npos) {
      shown.push_back(without_folders(word));
    } else {
      shown.push_back(word.substr(0, value + 1) + without_folders(word.substr(value + 1)));
    }
  }
  return shown;
}

std::string utc_now() {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
}

std::string new_run_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const auto ticks = std::chrono::steady_clock::now().time_since_epoch().count();
  return hex(
      hash64(static_cast<std::uint64_t>(now), static_cast<std::uint64_t>(ticks), static_cast<std::uint64_t>(getpid())));
}

}  // namespace lockstep::core
