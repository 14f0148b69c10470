// The algorithm that `auto` chooses: from a table that bench/tune has measured on this machine, or by a rule of thumb
// without one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/collective.h"

namespace lockstep::tuning {

// The fastest algorithm at one size, as measured.
struct Entry {
  std::string transport;
  collectives::Kind kind;
  int num_ranks;
  std::int64_t bytes;  // as algbw counts them
  std::string algorithm;
  int num_hosts = 1;  // that the ranks were on
};

struct Table {
  std::string machine;  // fingerprint of the machine that it was measured on (core/provenance.h)
  std::vector<Entry> entries;
  // The fastest of a vendor library's own algorithms, "library:algorithm=ring"; "library" where none was clearly faster
  // than the library's own choice. From these the libraries' own tuning files are written (bench/tuned_files.h); `auto`
  // does not read them.
  std::vector<Entry> library_entries = {};
};

struct Query {
  std::string_view transport;
  collectives::Kind kind;
  int num_ranks;
  std::int64_t bytes;
};

// The measured winner at the nearest size (in powers of two) for exactly this transport, collective and number of
// ranks; nothing if none was measured.
std::optional<std::string> measured_choice(const Table& table, const Query& query);

// Without measurements: the cheapest algorithm by the alpha-beta forms of docs/metrics.md. Below the size at which the
// bytes of a message cost as much as its latency, the algorithm with the fewest steps; above it, the one with the
// fewest bytes.
std::string rule_of_thumb(const Query& query);

// A JSON file; written atomically. Errors name the file and what is wrong with it.
Table load_table(const std::string& path);
void save_table(const Table& table, const std::string& path);
// True if there is a file at the path.
bool has_table(const std::string& path);

// LOCKSTEP_TUNING if set, else lockstep/tuning.json in XDG_CACHE_HOME or ~/.cache. Call it once, at the start.
std::string default_table_path();

}  // namespace lockstep::tuning
