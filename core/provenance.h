// What a stranger needs to repeat a run: the source, the build, the machine. Nothing private: no user, no host, no
// folder, no environment.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::core {

struct Source {
  std::string revision;       // git's, at build time; "unknown" outside of a checkout
  std::optional<bool> dirty;  // tracked files differ from the revision; nothing if unknown
};

struct Build {
  std::string version;   // Lockstep's: "0.1.0"
  std::string compiler;  // "GNU 12.2.0"
  std::string flags;     // without words that hold a path
  std::string type;      // "Release"
};

struct Caches {  // of one core, or shared by several
  std::optional<std::int64_t> l1d_bytes, l2_bytes, l3_bytes;
};

struct Machine {
  std::optional<std::string> cpu;  // model
  int cores = 1;                   // that this process may use
  std::optional<std::int64_t> memory_bytes;
  std::string kernel;  // "Linux 6.1.0"
  Caches caches;
  std::optional<double> mhz;      // the highest, or where it is not told, the present one
  std::vector<std::string> gpus;  // models
  int hosts = 1;
  // A hash of all of these but the clock: equal where results may be compared.
  std::string fingerprint() const;
};

Source source();
Build build();
Machine this_machine();  // without GPUs, one host: the caller knows better

// A command line as it may be shown to strangers: of absolute paths only the last part stays.
std::vector<std::string> public_command(const std::vector<std::string>& command);

std::string utc_now();     // "2026-01-31T23:59:59Z"
std::string new_run_id();  // 16 hexadecimal digits, not to be met twice

}  // namespace lockstep::core
