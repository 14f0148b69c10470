#include "simulator/machine/machine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "core/error.h"
#include "testing/core/fixtures.h"
#include "testing/core/thrown.h"

namespace lockstep::simulator {
namespace {

// The text of a valid description with one part replaced.
std::string described(const std::string& from = "", const std::string& to = "") {
  std::string text = to_json(load_machine("dgx-a100"));
  if (from.empty()) return text;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string refusal_of(const std::string& json) {
  return core::refusal_of([&] { parse_machine(json, "m.json"); });
}

TEST(Machines, AreBuiltInWithTheirSources) {
  for (const std::string& name : machine_names()) {
    const Machine machine = load_machine(name);
    EXPECT_FALSE(machine.sources.empty()) << name;
    EXPECT_EQ(to_json(parse_machine(to_json(machine), name)), to_json(machine)) << name;
  }
  const Machine a100 = load_machine("dgx-a100");
  EXPECT_EQ(a100.device.matrix_tflops, 312);
  EXPECT_EQ(a100.device.memory_gbps, 2039);
  EXPECT_EQ(a100.levels.front().ranks, 8);
  EXPECT_EQ(a100.levels.front().gbps, 300);
  EXPECT_EQ(a100.levels.back().gbps, 25);
}

TEST(Machines, ComeFromAFile) {
  const core::TemporaryFolder folder;
  const std::string path = folder / "machine.json";
  std::ofstream(path) << described("\"DGX A100", "\"my DGX A100");
  EXPECT_EQ(load_machine(path).name.rfind("my DGX", 0), 0u);
}

TEST(Machines, WhatWasMeasuredIsReadOrRefusedByItsField) {
  const auto with = [](const std::string& kernels) {
    return described("\"host_gbps\"", "\"measured\": {\"cores\": 2, \"threads\": 1, \"kernels\": [" + kernels +
                                          "], \"collectives\": [{\"collective\": \"all_reduce\", \"ranks\": 2, \"us\": "
                                          "[[8, 1.5]]}]},\n  \"host_gbps\"");
  };
  const Machine machine = parse_machine(with(R"({"kernel": "gelu_fwd f32:64", "us": [[1, 10], [2, 16]]})"), "m.json");
  EXPECT_EQ(machine.measured.kernels.at("gelu_fwd f32:64").size(), 2U);
  EXPECT_EQ(to_json(parse_machine(to_json(machine), "m.json")), to_json(machine));
  EXPECT_TRUE(core::has(refusal_of(with(R"({"kernel": "gelu_fwd f32:64", "us": [[2, 16]]})")), "copies from 1"));
  EXPECT_TRUE(
      core::has(refusal_of(with(R"({"kernel": "gelu_fwd f32:64", "us": [[1, 10], [1, 16]]})")), "in their order"));
  EXPECT_NE(refusal_of(with(R"({"kernel": "gelu_fwd f32:64", "us": []})")), "");
  EXPECT_EQ(refusal_of(with(R"({"kernel": "k", "us": [[1, 10]]}, {"kernel": "k", "us": [[1, 11]]})")),
            "m.json: measured.kernels[1].kernel: 'k' is there twice; allowed: one entry for each kernel");
}

TEST(Machines, WhatWasMeasuredFitsTogether) {
  const auto with = [](const std::string& cores_and_threads, const std::string& collectives) {
    return described("\"host_gbps\"", "\"measured\": {" + cores_and_threads + ", \"kernels\": [], \"collectives\": [" +
                                          collectives + "]},\n  \"host_gbps\"");
  };
  const std::string of_two = R"({"collective": "all_reduce", "ranks": 2, "us": [[8, 1.5]]})";
  const std::string of_three = R"({"collective": "all_reduce", "ranks": 3, "us": [[8, 1.5]]})";
  EXPECT_EQ(refusal_of(with(R"("cores": 2, "threads": 2)", of_two + ", " + of_three)), "");
  EXPECT_EQ(
      refusal_of(with(R"("cores": 2, "threads": 1)", of_two + ", " + of_two)),
      "m.json: measured.collectives[1].collective: 'all_reduce' of 2 ranks is there twice; allowed: one entry for each "
      "collective and number of ranks");
  EXPECT_EQ(refusal_of(with(R"("cores": 2, "threads": 3)", of_two)),
            "m.json: measured.threads: 3; allowed: as many as there are cores, 2, or fewer");
}

TEST(Machines, NumbersOfNcclAreReadOrRefusedByTheirField) {
  EXPECT_TRUE(core::has(refusal_of(described(R"("generation": "ampere")", R"("generation": "turing")")),
                        "m.json: nccl.generation: turing; allowed: volta ampere hopper blackwell"));
  EXPECT_NE(refusal_of(described("\"ll\": 0.5", "\"ll\": 1.5")), "");
  EXPECT_TRUE(core::has(refusal_of(described("\"nvls\": 0.0", "\"nvls\": 0.5")), "above 0 if and only if nvls is"));
  EXPECT_TRUE(core::has(refusal_of(described("\"of_members\": []", "\"of_members\": [[4, 0.5], [2, 0.2]]")),
                        "members from 2 on in their order"));
  const Machine mesh = load_machine("dgx1-v100");
  EXPECT_DOUBLE_EQ(mesh.nccl->share_of_links(2), 0.167);
  EXPECT_DOUBLE_EQ(mesh.nccl->share_of_links(6), 0.667);
  EXPECT_DOUBLE_EQ(mesh.nccl->share_of_links(8), 1);
  EXPECT_DOUBLE_EQ(load_machine("dgx-a100").nccl->share_of_links(2), 1);
}

TEST(Machines, ThatAreNotThereAreRefused) {
  EXPECT_THROW(load_machine("/no/such/file.json"), core::Error);
  EXPECT_TRUE(core::has(core::refusal_of([] { load_machine("dgx-z9"); }),
                        "machine: 'dgx-z9' is not known; allowed: a100-pcie dgx-a100"));
}

TEST(MachineFiles, AreRefusedInOneLineThatNamesTheField) {
  EXPECT_EQ(refusal_of(described()), "");
  EXPECT_EQ(refusal_of(described("\"matrix_tflops\": 312.0,", "")), "m.json: device.matrix_tflops is missing");
  EXPECT_EQ(refusal_of(described("\"matrix_tflops\": 312.0", "\"matrix_tflops\": -1")),
            "m.json: device.matrix_tflops: -1; allowed: numbers from 0 up");
  EXPECT_EQ(refusal_of(described("\"matrix_tflops\": 312.0", "\"matrix_tflops\": \"fast\"")),
            "m.json: device.matrix_tflops: \"fast\" is not a number; allowed: numbers from 0 up");
  EXPECT_EQ(refusal_of(described("\"launch_us\"", "\"lunch_us\": 1, \"launch_us\"")),
            "m.json: device.lunch_us: no such field; allowed: attention fp8_tflops launch_us matrix_tflops memory "
            "memory_bytes memory_gbps multiprocessors name product vector_tflops");
  EXPECT_EQ(refusal_of(described("\"gbps\":300.0", "\"gbps\":0")),
            "m.json: levels[0].gbps: 0; allowed: numbers above 0");
  EXPECT_EQ(refusal_of(described("\"ranks\":65536", "\"ranks\":12")),
            "m.json: levels[1].ranks: 12; allowed: multiples of the level below, 8");
  const std::string torus_of_8 = R"("one_at_a_time","torus":{"columns":2,"rows":3,"hop_us":0})";
  EXPECT_EQ(refusal_of(described("\"one_at_a_time\"", torus_of_8)),
            "m.json: levels[0].torus.rows: 3; allowed: as many as make columns x rows the level's ranks, 8");
  EXPECT_EQ(refusal_of(described("one_at_a_time", "both")),
            "m.json: levels[0].sharing: both; allowed: one_at_a_time fair");
  EXPECT_NE(refusal_of(described("\"collective_efficiency\":0.", "\"collective_efficiency\":1.")), "");
  EXPECT_EQ(refusal_of("[1]"), "m.json: not a JSON object; allowed: {...}");
  EXPECT_TRUE(core::has(refusal_of("{"), "m.json: not JSON"));
}

TEST(MachineFiles, CurvesRiseInWork) {
  const std::string text = R"({"name":"x","sources":[],"device":{"name":"d","matrix_tflops":1,"vector_tflops":1,
    "memory_gbps":1,"memory_bytes":1,"launch_us":0,"product":[[1e9,0.5],[1e8,0.6]],"attention":[[1,1]],
    "memory":[[1,1]]},"levels":[],"host_gbps":1})";
  EXPECT_TRUE(core::has(refusal_of(text), "m.json: device.product: "));
  EXPECT_TRUE(core::has(refusal_of(text), "points in the order of their work"));
}

TEST(Curves, AreStraightInTheLogarithmAndConstantOutside) {
  const EfficiencyCurve curve{{1e6, 0.2}, {1e8, 0.8}};
  EXPECT_DOUBLE_EQ(share_at(curve, 1e5), 0.2);
  EXPECT_DOUBLE_EQ(share_at(curve, 1e7), 0.5);
  EXPECT_DOUBLE_EQ(share_at(curve, 1e9), 0.8);
  EXPECT_DOUBLE_EQ(share_at({}, 1e9), 1);
}

std::string refusal_of_number(const std::string& path, double value) {
  return core::refusal_of([&] { with_number(load_machine("dgx-a100"), path, value); });
}

TEST(Vary, EveryNumberCanBeSetToWhatItIs) {
  const Machine machine = load_machine("dgx-a100");
  const std::vector<MachineNumber> numbers = numbers_of(machine);
  EXPECT_GT(numbers.size(), 15U);
  for (const MachineNumber& number : numbers) {
    Machine same = with_number(machine, number.path, number.value);
    same.name = machine.name;
    EXPECT_EQ(to_json(same), to_json(machine)) << number.path;
  }
}

TEST(Vary, OneNumberChangesAndTheNameShowsIt) {
  const Machine changed = with_number(load_machine("dgx-a100"), "levels.1.gbps", 50);
  EXPECT_EQ(changed.levels[1].gbps, 50);
  EXPECT_EQ(changed.levels[0].gbps, load_machine("dgx-a100").levels[0].gbps);
  EXPECT_TRUE(changed.name.ends_with(", levels.1.gbps=50")) << changed.name;
}

TEST(Vary, ACurveKeepsItsShape) {
  const Machine machine = load_machine("dgx-a100");
  const EfficiencyCurve before = machine.device.product;
  const EfficiencyCurve after = with_number(machine, "device.product", before.back().share / 2).device.product;
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(after[i].share, before[i].share / 2, 1e-12);
}

TEST(Vary, IsRefusedInOneLine) {
  EXPECT_TRUE(core::has(refusal_of_number("levels.7.gbps", 1), "'levels.7.gbps' is not a number of DGX A100"));
  EXPECT_TRUE(core::has(refusal_of_number("levels.7.gbps", 1), "allowed: device.matrix_tflops"));
  EXPECT_TRUE(core::has(refusal_of_number("levels.0.efficiency", 1.5), "efficiency"));
  EXPECT_TRUE(core::has(refusal_of_number("levels.1.gbps", -5), "gbps"));
}

std::string ceiling(const std::string& name, const std::string& level, const std::string& dtype, double value) {
  const auto quoted = [](const std::string& text) { return text.empty() ? std::string("null") : "\"" + text + "\""; };
  return R"({"record":"ceiling","run":"r","device":"cpu","threads":2,"name":")" + name +
         "\",\"level\":" + quoted(level) + ",\"dtype\":" + quoted(dtype) + ",\"value\":" + std::to_string(value) +
         ",\"unit\":\"x\",\"samples\":[]}\n";
}

std::string kernel(const std::string& name, const std::string& bound, double flops, double bytes, double us) {
  return R"({"record":"kernel","run":"r","kernel":")" + name + R"(","dtype":"bf16","device":"cpu","threads":2,)" +
         R"("cache":"cold","status":"ok","bound":")" + bound + "\",\"flops\":" + std::to_string(flops) +
         ",\"bytes\":" + std::to_string(bytes) + ",\"stats\":{\"median\":" + std::to_string(us) + "}}\n";
}

std::string row(double steps, double bytes, double us) {
  return R"({"record":"row","run":"r","collective":"all_reduce","algorithm":"ring","ranks":4,"status":"ok",)" +
         std::string(R"("basis":"measured","time_us":)") + std::to_string(us) +
         ",\"plan\":{\"steps\":" + std::to_string(steps) + ",\"wire_bytes_max\":" + std::to_string(bytes) + "}}\n";
}

std::string ceilings() {
  return R"({"record":"run","machine":{"cpu":"a CPU","memory_bytes":1000,"gpus":[]}})"
         "\n" +
         ceiling("gemm", "", "bf16", 1000) + ceiling("gemm", "", "f32", 100) + ceiling("fma", "", "f32", 200) +
         ceiling("launch", "", "", 0.5) + ceiling("copy", "memory", "", 30) + ceiling("read", "memory", "", 40) +
         ceiling("triad", "memory", "", 35) + ceiling("copy", "l1", "", 900);
}

// 2 us per step and 4 GB/s.
std::string rows() {
  std::string text;
  for (const double bytes : {1e3, 1e5, 1e7}) text += row(6, bytes, 2 * 6 + bytes / 4e3);
  return text;
}

TEST(Calibrate, TurnsRecordsIntoADescription) {
  // 1e9 FLOPs in 2000 us are 500 GFLOP/s, half of the peak; 2e6 bytes in 100 us are 20 GB/s, half of it as well.
  const std::string text = ceilings() + kernel("gemm_fwd", "compute", 1e9, 1e6, 2000) +
                           kernel("gelu_fwd", "memory", 1e6, 2e6, 100) +
                           kernel("attention_fwd", "compute", 1e9, 1e6, 4000) + rows();
  const Machine machine = calibrate(read_record_lines(text, "r.jsonl"), "r.jsonl");
  EXPECT_DOUBLE_EQ(machine.device.matrix_tflops, 1.0);
  EXPECT_DOUBLE_EQ(machine.device.vector_tflops, 0.2);
  EXPECT_DOUBLE_EQ(machine.device.memory_gbps, 40);
  EXPECT_DOUBLE_EQ(machine.device.launch_us, 0.5);
  EXPECT_EQ(machine.device.memory_bytes, 1000);
  EXPECT_NEAR(share_at(machine.device.product, 1e9), 0.5, 1e-12);
  EXPECT_NEAR(share_at(machine.device.attention, 1e9), 0.25, 1e-12);
  EXPECT_NEAR(share_at(machine.device.memory, 2e6), 0.5, 1e-12);
  ASSERT_EQ(machine.levels.size(), 1u);
  EXPECT_NEAR(machine.levels[0].latency_us, 2, 1e-6);
  EXPECT_NEAR(machine.levels[0].gbps, 4, 1e-6);
  EXPECT_EQ(to_json(parse_machine(to_json(machine), "x")), to_json(machine)) << "can be written and read";
}

TEST(Calibrate, TakesTheBestProductForThePeakIfItBeatsTheCeiling) {
  const std::string text = ceilings() + kernel("gemm_fwd", "compute", 1e9, 1e6, 500) + rows();
  const Machine machine = calibrate(read_record_lines(text, "r.jsonl"), "r.jsonl");
  EXPECT_DOUBLE_EQ(machine.device.matrix_tflops, 2.0);
  EXPECT_DOUBLE_EQ(share_at(machine.device.product, 1e9), 1.0);
}

// A kernel of one operand with the given bytes, timed with the given number of concurrent copies.
std::string timed(int threads, int copies, const std::string& cache, int bytes, double us) {
  return R"({"record":"kernel","run":"r","kernel":"gelu_fwd","dtype":"f32","device":"cpu","status":"ok","bound":"memory",)" +
         std::string(R"("flops":1,"bytes":1,"cache":")") + cache + "\",\"threads\":" + std::to_string(threads) +
         ",\"copies\":" + std::to_string(copies) +
         ",\"operands\":[{\"dtype\":\"f32\",\"bytes\":" + std::to_string(bytes) +
         "}],\"stats\":{\"median\":" + std::to_string(us) + "}}\n";
}

std::string sized_row(const std::string& algorithm, double bytes, double us) {
  std::string text = row(6, bytes, us);
  text.replace(text.find("\"ring\""), 6, "\"" + algorithm + "\"");
  return text.replace(text.find("\"run\""), 0, "\"bytes\":" + std::to_string(bytes) + ",");
}

TEST(Calibrate, KeepsWhatKernelsAndCollectivesTookOnTheSharedCores) {
  std::string records = ceilings() + rows();
  records.replace(records.find("\"memory_bytes\""), 0, "\"cores\":2,");
  for (std::size_t at = 0; (at = records.find("\"threads\":2", at)) != std::string::npos;) {
    records.replace(at, 11, "\"threads\":1");
  }
  // Ranks have one thread, so the ceilings of one thread apply.
  for (std::size_t at = 0; (at = records.find("\"threads\":2", at)) != std::string::npos;) {
    records.replace(at, 11, "\"threads\":1");
  }
  const std::string text = records + timed(1, 1, "cold", 64, 10) + timed(1, 2, "cold", 64, 16) +
                           timed(1, 1, "cold", 128, 30) + timed(1, 1, "warm", 64, 5) + timed(2, 1, "cold", 64, 6) +
                           sized_row("two_shot", 1e5, 40) + sized_row("ring", 1e5, 50) + sized_row("ring", 1e6, 300);
  const Machine machine = calibrate(read_record_lines(text, "r.jsonl"), "r.jsonl");
  const Measured& measured = machine.measured;
  EXPECT_EQ(measured.cores, 2);
  EXPECT_EQ(measured.threads, 1) << "the fewest";
  ASSERT_EQ(measured.kernels.size(), 2U);
  const Measured::Curve& small = measured.kernels.at("gelu_fwd f32:64 flops:1");
  EXPECT_DOUBLE_EQ(value_at(small, 1), 10) << "from cold caches";
  EXPECT_DOUBLE_EQ(value_at(small, 1.5), 13);
  EXPECT_DOUBLE_EQ(value_at(small, 4), 16);
  const Measured::Collective* const reduced = measured.find("all_reduce", 4);
  ASSERT_NE(reduced, nullptr);
  EXPECT_EQ(reduced->us_of_bytes, (Measured::Curve{{1e5, 40}, {1e6, 300}})) << "the fastest of a size";
  EXPECT_EQ(measured.find("all_reduce", 2), nullptr);
  EXPECT_EQ(to_json(parse_machine(to_json(machine), "x")), to_json(machine));
  EXPECT_EQ(calibrate(read_record_lines(ceilings() + rows(), "r.jsonl"), "r.jsonl").measured.cores, 0)
      << "nothing without kernels";
}

TEST(Calibrate, LeavesOutWhatIsWrongOrEmulated) {
  std::string bad = row(6, 1e7, 1);
  bad.replace(bad.find("measured"), 8, "emulated");
  std::string wrong = row(6, 1e7, 1);
  wrong.replace(wrong.find("\"ok\""), 4, "\"wrong\"");
  const RecordLines lines = read_record_lines(rows() + bad + wrong, "r.jsonl");
  EXPECT_EQ(lines.rows.size(), 3u);
}

TEST(Calibrate, NamesWhatIsMissing) {
  const auto refusal = [](const std::string& text) {
    return core::refusal_of([&] { calibrate(read_record_lines(text, "r.jsonl"), "r.jsonl"); });
  };
  EXPECT_EQ(refusal(rows()), "r.jsonl: no records of ceilings; kernels_bench --json writes them");
  EXPECT_EQ(refusal(ceiling("gemm", "", "bf16", 5)),
            "r.jsonl: no record of the ceiling 'fma'; kernels_bench --json writes them");
  EXPECT_TRUE(core::has(refusal(ceilings()), "r.jsonl: no two or more measured rows"));
  EXPECT_EQ(refusal("{\"a\":1}"), "r.jsonl: line 1 is not a record; allowed: lines of docs/record_format.md");
  EXPECT_EQ(
      refusal("\n{\"record\""),
      "r.jsonl: line 2: not JSON: parse error at line 1, column 10: syntax error while parsing object separator - "
      "unexpected end of input; expected ':'");
}

TEST(Calibrate, FitsNoNegativeLatency) {
  const std::vector<RowLine> odd{{"", "ring", 4, 1, 6, 1e4}, {"", "ring", 4, 2000, 6, 1e7}};
  EXPECT_GE(fit_link(odd).latency_us, 0);
  EXPECT_GT(fit_link(odd).gbps, 0);
}

}  // namespace
}  // namespace lockstep::simulator
