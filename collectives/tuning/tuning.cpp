#include "collectives/tuning/tuning.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "core/options.h"
#include "core/output_file.h"
#include "core/record_json.h"

namespace lockstep::tuning {
namespace {

using collectives::Kind;
using nlohmann::json;

constexpr int kVersion = 1;

double distance(std::int64_t a, std::int64_t b) {
  return std::abs(std::log2(static_cast<double>(std::max<std::int64_t>(a, 1))) -
                  std::log2(static_cast<double>(std::max<std::int64_t>(b, 1))));
}

std::int64_t number_in(const json& row, const char* name, std::int64_t most) {
  const auto number = core::integer_in(row.at(name), 0, most);
  if (!number) throw core::usage_error(fmt::format("{} is {}; allowed: 0 to {}", name, row.at(name).dump(), most));
  return *number;
}

Entry entry_of(const json& row) {
  const bool says_hosts = row.contains("hosts");  // tables of one host need not
  return {row.at("transport").get<std::string>(),
          collectives::parse_kind(row.at("collective").get<std::string>()),
          static_cast<int>(number_in(row, "ranks", std::numeric_limits<int>::max())),
          number_in(row, "bytes", std::numeric_limits<std::int64_t>::max()),
          row.at("algorithm").get<std::string>(),
          says_hosts ? static_cast<int>(number_in(row, "hosts", std::numeric_limits<int>::max())) : 1};
}

json row_of(const Entry& entry) {
  return {{"transport", entry.transport}, {"collective", collectives::name_of(entry.kind)},
          {"ranks", entry.num_ranks},     {"hosts", entry.num_hosts},
          {"bytes", entry.bytes},         {"algorithm", entry.algorithm}};
}

std::vector<Entry> entries_of(const json& rows) {
  std::vector<Entry> entries;
  for (const json& row : rows) entries.push_back(entry_of(row));
  return entries;
}

Table table_of(const json& document) {
  if (const std::int64_t version = number_in(document, "version", std::numeric_limits<int>::max());
      version != kVersion) {
    throw core::usage_error(fmt::format("version {}; this program reads {}", version, kVersion));
  }
  return {document.at("machine").get<std::string>(), entries_of(document.at("entries")),
          entries_of(document.value("library_entries", json::array()))};
}

}  // namespace

std::optional<std::string> measured_choice(const Table& table, const Query& query) {
  const Entry* nearest = nullptr;
  for (const Entry& entry : table.entries) {
    if (entry.transport != query.transport || entry.kind != query.kind || entry.num_ranks != query.num_ranks) continue;
    if (nearest == nullptr || distance(entry.bytes, query.bytes) < distance(nearest->bytes, query.bytes)) {
      nearest = &entry;
    }
  }
  if (nearest == nullptr) return std::nullopt;
  return nearest->algorithm;
}

std::string rule_of_thumb(const Query& query) {
  const bool shared_memory = query.transport == "local";
  // Size at which a message's latency and its bytes cost the same: about 1 us at 8 GB/s, and 20 us at 1 Gbit/s and up.
  const std::int64_t small = (shared_memory ? 8 : 16) << 10;
  const bool latency_bound = query.bytes <= small;
  switch (query.kind) {
    case Kind::all_reduce:
      if (shared_memory) return latency_bound ? "one_shot" : "two_shot";
      return latency_bound ? "recursive_doubling" : "ring";
    case Kind::reduce_scatter:
      if (shared_memory) return "direct";
      return latency_bound ? "recursive_halving" : "ring";
    case Kind::all_gather:
      if (shared_memory) return "direct";
      return latency_bound ? "bruck" : "ring";
    case Kind::broadcast:
    case Kind::reduce:
      if (latency_bound) return "binomial";
      return shared_memory ? "direct" : "chain";
    case Kind::all_to_all:
      return latency_bound && !shared_memory ? "bruck" : "pairwise";
    case Kind::all_to_all_v:
      return "pairwise";
    case Kind::gather:
    case Kind::scatter:
      return latency_bound && !shared_memory ? "binomial" : "direct";
    case Kind::send_recv:
      return "direct";
    case Kind::hypercube:
      return "exchange";
  }
  return "direct";
}

Table load_table(const std::string& path) {
  const std::string where = "tuning table " + path;
  const json document = core::parse_json(core::text_of_file(path, "a table that tune wrote", where), where);
  try {
    return table_of(document);
  } catch (const core::Error& error) {
    throw core::usage_error(fmt::format("{}: {}; write a new one with tune", where, error.what()));
  } catch (const json::exception& error) {
    throw core::usage_error(fmt::format("{}: {}; write a new one with tune", where, core::reason_of(error)));
  }
}

void save_table(const Table& table, const std::string& path) {
  json document{{"version", kVersion},
                {"machine", table.machine},
                {"entries", json::array()},
                {"library_entries", json::array()}};
  for (const Entry& entry : table.entries) document["entries"].push_back(row_of(entry));
  for (const Entry& entry : table.library_entries) document["library_entries"].push_back(row_of(entry));
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  std::error_code ignored;  // the file's own error says more
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  core::AtomicFile file(path);
  file.write(document.dump(1) + "\n");
  file.commit();
}

bool has_table(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

std::string default_table_path() {
  const auto from_environment = [](const char* name) {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): read once, before any rank starts
    return std::string(value == nullptr ? "" : value);
  };
  if (std::string path = from_environment("LOCKSTEP_TUNING"); !path.empty()) return path;
  if (const std::string cache = from_environment("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/lockstep/tuning.json";
  return from_environment("HOME") + "/.cache/lockstep/tuning.json";
}

}  // namespace lockstep::tuning
