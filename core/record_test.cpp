#include "core/record.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/error.h"
#include "testing/core/fixtures.h"

namespace lockstep::core {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

RunRecord sample_run() {
  RunRecord run;
  run.run = "0123456789abcdef";
  run.program = "all_reduce_perf";
  run.command = {"all_reduce_perf", "--json", "/home/someone/r.jsonl"};
  run.started = "2026-01-31T23:59:59Z";
  run.git = {"unknown", std::nullopt};
  run.build = {"GNU 12.2.0", "-O3", "Release", "0.1.0"};
  run.machine.cpu = "A processor";
  run.machine.cores = 2;
  run.machine.kernel = "Linux 6.1.0";
  run.machine.caches.l2_bytes = 2097152;
  run.libraries = {{"mpi", "Open MPI 4.1.4"}};
  run.ranks = 4;
  run.transport = "local";
  run.rank_kind = "threads";
  run.oversubscribed = true;
  run.seed = std::numeric_limits<std::uint64_t>::max();
  return run;
}

RowRecord sample_row() {
  RowRecord row;
  row.run = "0123456789abcdef";
  row.collective = "all_reduce";
  row.algorithm = "ring:lanes=2";
  row.executor = "direct";
  row.transport = "local";
  row.ranks = 4;
  row.bytes = 1024;
  row.count = 256;
  row.dtype = "float";
  row.op = "sum";
  row.wrong = 0;
  row.iterations = 3;
  row.time_us = 2;
  row.algbw_gbps = 0.512;
  row.busbw_gbps = 0.768;
  row.samples_us = {1, 2, 3};
  row.plan = PlanRecord{6, 1536, 6144, std::nullopt};
  return row;
}

TEST(RecordTest, RunIsTheDocumentedLine) {
  const std::string line = to_json(sample_run());
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_EQ(json::parse(line), json::parse(R"({
      "record": "run", "version": 1, "run": "0123456789abcdef", "program": "all_reduce_perf",
      "command": ["all_reduce_perf", "--json", "r.jsonl"], "started": "2026-01-31T23:59:59Z",
      "git": {"revision": "unknown", "dirty": null},
      "build": {"compiler": "GNU 12.2.0", "flags": "-O3", "type": "Release", "version": "0.1.0"},
      "machine": {"fingerprint": ")" + fingerprint(sample_run().machine) +
                                           R"(", "cpu": "A processor", "cores": 2,
                  "memory_bytes": null, "kernel": "Linux 6.1.0",
                  "caches": {"l1d_bytes": null, "l2_bytes": 2097152, "l3_bytes": null},
                  "mhz": null, "gpus": [], "hosts": 1}, "gpu": null,
      "libraries": {"mpi": "Open MPI 4.1.4"}, "ranks": 4, "transport": "local", "rank_kind": "threads",
      "oversubscribed": true, "others_share": null, "seed": 18446744073709551615, "link": null, "basis": "measured"})"));
}

TEST(RecordTest, RowIsTheDocumentedLine) {
  json row = json::parse(to_json(sample_row()));
  const json stats = row.at("stats");
  EXPECT_EQ(stats.at("median"), 2);
  EXPECT_EQ(stats.at("count"), 3);
  EXPECT_EQ(stats.at("p5"), 1.1);
  EXPECT_LE(stats.at("ci_low"), stats.at("ci_high"));
  row.erase("stats");
  EXPECT_EQ(row, json::parse(R"({
      "record": "row", "run": "0123456789abcdef", "collective": "all_reduce", "algorithm": "ring:lanes=2",
      "executor": "direct", "transport": "local", "ranks": 4, "bytes": 1024, "count": 256, "dtype": "float",
      "op": "sum", "root": -1, "in_place": false, "basis": "measured", "status": "ok", "error": null, "wrong": 0,
      "iterations": 3, "graph_iterations": 0, "time_us": 2.0, "queued_us": null, "algbw_gbps": 0.512, "busbw_gbps": 0.768,
      "samples_us": [1.0, 2.0, 3.0], "plan": {"steps": 6, "wire_bytes_max": 1536, "wire_bytes_total": 6144, "predicted_us": null}})"));
}

TEST(RecordTest, KernelIsTheDocumentedLine) {
  KernelRecord kernel;
  kernel.run = "0123456789abcdef";
  kernel.kernel = "gelu_fwd";
  kernel.shape = "N3";
  kernel.dtype = "bf16";
  kernel.threads = 2;
  kernel.copies = 3;
  kernel.cores = {0, 1};
  kernel.cache = "cold";
  kernel.checked = true;
  kernel.flops = 27;
  kernel.bytes = 12;
  kernel.operands = {{"x", "read", "bf16", 6}};
  kernel.iterations = 6;
  kernel.time_us = 2;
  kernel.samples_us = {1, 2, 3};
  kernel.gbps = 0.006;
  kernel.bound = "launch";
  kernel.ceiling_us = 1;
  kernel.share = 0.5;
  json line = json::parse(to_json(kernel));
  EXPECT_EQ(line.at("stats").at("median"), 2);
  line.erase("stats");
  EXPECT_EQ(line, json::parse(R"({
      "record": "kernel", "run": "0123456789abcdef", "kernel": "gelu_fwd", "shape": "N3", "dtype": "bf16",
      "device": "cpu", "threads": 2, "copies": 3, "cores": [0, 1], "cache": "cold", "timing": "host", "implementation": null,
      "basis": "measured", "status": "ok", "checked": true, "error": null, "flops": 27.0, "bytes": 12.0,
      "operands": [{"name": "x", "access": "read", "dtype": "bf16", "bytes": 6}], "iterations": 6, "time_us": 2.0, "samples_us": [1.0, 2.0, 3.0], "gbps": 0.006, "gflops": null,
      "bound": "launch", "ceiling_us": 1.0, "share": 0.5})"));
}

TEST(RecordTest, CeilingIsTheDocumentedLine) {
  CeilingRecord ceiling;
  ceiling.run = "0123456789abcdef";
  ceiling.name = "copy";
  ceiling.level = "l2";
  ceiling.value = 90;
  ceiling.unit = "gbps";
  ceiling.samples = {80, 90};
  json line = json::parse(to_json(ceiling));
  EXPECT_EQ(line.at("stats").at("count"), 2);
  line.erase("stats");
  EXPECT_EQ(line, json::parse(R"({
      "record": "ceiling", "run": "0123456789abcdef", "device": "cpu", "threads": 1, "name": "copy", "level": "l2",
      "dtype": null, "value": 90.0, "unit": "gbps", "samples": [80.0, 90.0]})"));
}

TEST(RecordTest, AFailedRowHasNoNumbers) {
  RowRecord row;
  row.run = "0";
  row.status = "failed";
  row.error = "rank 3 is lost";
  const json line = json::parse(to_json(row));
  EXPECT_EQ(line.at("error"), "rank 3 is lost");
  for (const char* field : {"time_us", "algbw_gbps", "busbw_gbps", "stats", "plan", "wrong"}) {
    EXPECT_TRUE(line.at(field).is_null()) << field;
  }
  EXPECT_TRUE(line.at("samples_us").empty());
}

TEST(RecordTest, WhatIsNoNumberIsNull) {
  RowRecord row = sample_row();
  row.busbw_gbps = std::nan("");
  row.algbw_gbps = HUGE_VAL;
  const json line = json::parse(to_json(row));
  EXPECT_TRUE(line.at("busbw_gbps").is_null());
  EXPECT_TRUE(line.at("algbw_gbps").is_null());
}

TEST(RecordTest, AnEmulatedLinkIsRecorded) {
  RunRecord run = sample_run();
  run.link = LinkRecord{10, std::nullopt};
  run.basis = "emulated";
  EXPECT_EQ(json::parse(to_json(run)).at("link"), json::parse(R"({"latency_us": 10.0, "gbps": null})"));
}

TEST(RecordTest, BytesThatAreNoUtf8DoNotBreakTheLine) {
  RunRecord run = sample_run();
  run.command = {"a", "\xff\xfe"};
  EXPECT_TRUE(json::accept(to_json(run)));
}

TEST(RecordWriterTest, WritesRunsAndRowsAtOnce) {
  const TemporaryFolder folder;
  const std::string path = folder / "r.jsonl";
  {
    RecordWriter abandoned(path);
    abandoned.write(sample_run());
  }
  EXPECT_TRUE(fs::is_empty(folder.path())) << "a run without results";
  RecordWriter writer(path);
  writer.write(sample_run());
  writer.write(sample_row());
  writer.commit();
  std::ifstream file(path);
  std::vector<std::string> kinds;
  for (std::string line; std::getline(file, line);) kinds.push_back(json::parse(line).at("record"));
  EXPECT_EQ(kinds, (std::vector<std::string>{"run", "row"}));
}

TEST(RecordWriterTest, RecordsAtTheEndWhatOtherProgramsUsed) {
  const TemporaryFolder folder;
  const std::string path = folder / "r.jsonl";
  const auto child = fork();
  if (child == 0) {
    for (;;) std::atomic_signal_fence(std::memory_order_seq_cst);  // busy
  }
  RecordWriter writer(path);
  RunRecord simulated = sample_run();
  simulated.basis = "simulated";
  for (const RunRecord& run : {sample_run(), simulated}) {
    writer.write(run);
    writer.write(sample_row());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  writer.commit();
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  std::ifstream file(path);
  std::vector<json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
  ASSERT_EQ(lines.size(), 4U);
  EXPECT_GT(lines[0].at("others_share"), 0.0);
  EXPECT_LE(lines[0].at("others_share"), 1.0);
  EXPECT_TRUE(lines[2].at("others_share").is_null()) << "a simulated time does not depend on the machine";
  EXPECT_EQ(lines[1], json::parse(to_json(sample_row())));
}

TEST(RecordWriterTest, ReportsAtOnceThatItCannotWrite) {
  EXPECT_THROW(RecordWriter("/nonexistent/folder/r.jsonl"), Error);
}

}  // namespace
}  // namespace lockstep::core
