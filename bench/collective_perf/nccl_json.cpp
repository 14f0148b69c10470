#include "bench/collective_perf/sweep.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/output_file.h"
#include "core/provenance.h"

namespace lockstep::sweep {
namespace {

using Json = nlohmann::ordered_json;

std::string free_path(const std::string& path) {
  std::string free = path;
  for (int i = 0; std::filesystem::exists(std::filesystem::symlink_status(free)); ++i) {
    free = path + "." + std::to_string(i);
  }
  return free;
}

// nccl-tests writes booleans as words.
const char* word(bool value) {
  return value ? "true" : "false";
}

Json config_of(const Heading& heading) {
  const SweepFlags& flags = heading.flags;
  Json config{{"nthreads", heading.threads},
              {"ngpus", heading.gpus},
              {"minimum_bytes", flags.sizes.min_bytes},
              {"maximum_bytes", flags.sizes.max_bytes}};
  if (flags.sizes.step_factor > 1) {
    config["step_factor"] = flags.sizes.step_factor;
  } else {
    config["step_bytes"] = flags.sizes.step_bytes;
  }
  config["warmup_iters"] = flags.warmup_iterations;
  config["iterations"] = flags.iterations;
  config["aggregated_iterations"] = flags.calls_per_iteration;
  config["validation"] = flags.check ? 1 : 0;
  config["graph"] = flags.device.graph_launches;
  config["blocking_collectives"] = word(flags.device.blocking != Blocking::none);
  config["parallel_init"] = word(true);  // regardless of -p
  config["devices"] = Json::array();
  for (const DeviceLine& line : heading.devices) {
    config["devices"].push_back({{"rank", line.rank},
                                 {"group", 0},
                                 {"pid", line.process_id},
                                 {"hostname", line.host},
                                 {"device", line.device},
                                 {"device_hex", line.bus_id},
                                 {"device_info", line.name}});
  }
  return config;
}

Json placement_of(const Measured& measured, const char* time) {
  if (measured.failed) return nullptr;
  Json placement{{time, measured.time_us}, {"alg_bw", measured.algbw_gbps}, {"bus_bw", measured.busbw_gbps}};
  placement["nwrong"] = measured.wrong ? Json(static_cast<double>(*measured.wrong)) : Json(nullptr);
  return placement;
}

Json per_iteration_of(const Measured& measured, const RowResult& result, int skipped) {
  const auto& samples = result.samples_us;
  const auto first = std::min(static_cast<std::size_t>(skipped), samples.size());
  const std::vector<double> times(samples.begin() + static_cast<std::ptrdiff_t>(first), samples.end());
  const double mean = times.empty() ? 0 : std::accumulate(times.begin(), times.end(), 0.0) / double(times.size());
  return {{"skipped_iterations", skipped},     {"min_us", measured.samples.min},
          {"max_us", measured.samples.max},    {"avg_us", mean},
          {"p50_us", measured.samples.median}, {"p95_us", measured.samples.p95},
          {"p99_us", measured.samples.p99},    {"stdev_us", mean * measured.cv_percent() / 100},
          {"cv_pct", measured.cv_percent()},   {"times_us", times}};
}

Json result_of(const Row& row, const char* time = "time") {
  char root[16];
  std::snprintf(root, sizeof root, "%6d", static_cast<int>(row.of.root));  // padded as nccl-tests pads it
  return {{"size", row.of.bytes},
          {"count", row.of.count},
          {"type", row.of.dtype},
          {"redop", row.of.op},
          {"root", root},
          {"out_of_place", placement_of(row.out_of_place, time)},
          {"in_place", placement_of(row.in_place, time)}};
}

// Adds ranks, transport and algorithm, which nccl-tests does not have.
Json with_choice(Json result, const Row& row) {
  result["ranks"] = row.of.ranks;
  result["transport"] = row.of.transport;
  result["algorithm"] = row.of.algorithm;
  return result;
}

}  // namespace

struct NcclJson::State {
  explicit State(const std::string& wanted) : path(free_path(wanted)), file(path) {}
  const std::string path;
  core::AtomicFile file;
  Json document = Json::object();
};

NcclJson::NcclJson(const std::string& path) : state_(std::make_unique<State>(path)) {}
NcclJson::~NcclJson() = default;

const std::string& NcclJson::path() const {
  return state_->path;
}

void NcclJson::begin(const Heading& heading, int nccl_version) {
  Json& document = state_->document;
  if (!document.empty()) {
    if (nccl_version != 0) document["nccl_version"] = nccl_version;
    return;
  }
  document["version"] = 3;
  document["start_time"] = timestamp_now();
  document["args"] = core::public_command(heading.flags.command);
  document["env"] = Json::array();
  document["nccl_version"] = nccl_version;
  document["lockstep_version"] = heading.version;
  document["config"] = config_of(heading);
  document["results"] = Json::array();
}

void NcclJson::add(const Row& row, const Comparison& comparison, const SweepFlags& flags) {
  Json result = result_of(row, flags.device.report_cpu_time ? "cpu_time" : "time");
  const RowResult& out_of_place = comparison.out_of_place;
  if (!comparison.in_place) result["in_place"] = nullptr;
  if (flags.per_iteration_timing) {
    result["out_of_place_per_iter"] = per_iteration_of(row.out_of_place, out_of_place, flags.per_iteration_skip);
    if (comparison.in_place) {
      result["in_place_per_iter"] = per_iteration_of(row.in_place, *comparison.in_place, flags.per_iteration_skip);
    }
  }
  result["actual_iterations"] = out_of_place.iterations;
  result["experiment_name"] = flags.program;
  state_->document["results"].push_back(with_choice(std::move(result), row));
}

void NcclJson::add_failure(const Row& row, const std::string& error) {
  state_->document["results"].push_back(with_choice(result_of(row), row));
  state_->document["errors"].push_back(error);
}

void NcclJson::finish(const Footing& footing) {
  Json& document = state_->document;
  document["out_of_bounds"] = {{"count", footing.wrong_rows}, {"okay", word(footing.wrong_rows == 0)}};
  const char* const enough = footing.min_busbw_gbps ? word(!below_minimum(footing)) : "unchecked";
  document["average_bus_bandwidth"] = {{"bandwidth", footing.average_busbw_gbps}, {"okay", enough}};
  if (!document.contains("errors")) document["errors"] = Json::array();
  document["end_time"] = timestamp_now();
  state_->file.write(document.dump() + "\n");
  state_->file.commit();
}

}  // namespace lockstep::sweep
