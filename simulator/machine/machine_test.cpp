#include "simulator/machine/machine.h"

#include <gtest/gtest.h>

#include <fstream>

#include "core/error.h"
#include "core/fixtures_for_tests.h"

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
  try {
    parse_machine(json, "m.json");
  } catch (const core::Error& error) {
    EXPECT_EQ(error.failure(), core::Failure::usage);
    return error.what();
  }
  return "";
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
  EXPECT_NE(refusal_of(with(R"({"kernel": "gelu_fwd f32:64", "us": [[2, 16]]})")).find("copies from 1"),
            std::string::npos);
  EXPECT_NE(refusal_of(with(R"({"kernel": "gelu_fwd f32:64", "us": [[1, 10], [1, 16]]})")).find("in their order"),
            std::string::npos);
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
      "m.json: measured.collectives[1].collective: 'all_reduce' of 2 ranks is there twice; allowed: one entry for "
      "each collective and number of ranks");
  EXPECT_EQ(refusal_of(with(R"("cores": 2, "threads": 3)", of_two)),
            "m.json: measured.threads: 3; allowed: as many as there are cores, 2, or fewer");
}

TEST(Machines, NumbersOfNcclAreReadOrRefusedByTheirField) {
  EXPECT_NE(refusal_of(described(R"("generation": "ampere")", R"("generation": "turing")"))
                .find("m.json: nccl.generation: turing; allowed: volta ampere hopper blackwell"),
            std::string::npos);
  EXPECT_NE(refusal_of(described("\"ll\": 0.5", "\"ll\": 1.5")), "");
  EXPECT_NE(refusal_of(described("\"nvls\": 0.0", "\"nvls\": 0.5")).find("above 0 if and only if nvls is"),
            std::string::npos);
  EXPECT_NE(refusal_of(described("\"of_members\": []", "\"of_members\": [[4, 0.5], [2, 0.2]]"))
                .find("members from 2 on in their order"),
            std::string::npos);
  const Machine mesh = load_machine("dgx1-v100");
  EXPECT_DOUBLE_EQ(mesh.nccl->share_of_links(2), 0.167);
  EXPECT_DOUBLE_EQ(mesh.nccl->share_of_links(6), 0.667);
  EXPECT_DOUBLE_EQ(mesh.nccl->share_of_links(8), 1);
  EXPECT_DOUBLE_EQ(load_machine("dgx-a100").nccl->share_of_links(2), 1);
}

TEST(Machines, ThatAreNotThereAreRefused) {
  EXPECT_THROW(load_machine("/no/such/file.json"), core::Error);
  try {
    load_machine("dgx-z9");
    FAIL();
  } catch (const core::Error& error) {
    EXPECT_NE(std::string(error.what()).find("machine: 'dgx-z9' is not known; allowed: a100-pcie dgx-a100"),
              std::string::npos);
  }
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
  EXPECT_NE(refusal_of("{").find("m.json: not JSON"), std::string::npos);
}

TEST(MachineFiles, CurvesRiseInWork) {
  const std::string text = R"({"name":"x","sources":[],"device":{"name":"d","matrix_tflops":1,"vector_tflops":1,
    "memory_gbps":1,"memory_bytes":1,"launch_us":0,"product":[[1e9,0.5],[1e8,0.6]],"attention":[[1,1]],
    "memory":[[1,1]]},"levels":[],"host_gbps":1})";
  EXPECT_NE(refusal_of(text).find("m.json: device.product: "), std::string::npos);
  EXPECT_NE(refusal_of(text).find("points in the order of their work"), std::string::npos);
}

TEST(Curves, AreStraightInTheLogarithmAndConstantOutside) {
  const EfficiencyCurve curve{{1e6, 0.2}, {1e8, 0.8}};
  EXPECT_DOUBLE_EQ(share_at(curve, 1e5), 0.2);
  EXPECT_DOUBLE_EQ(share_at(curve, 1e7), 0.5);
  EXPECT_DOUBLE_EQ(share_at(curve, 1e9), 0.8);
  EXPECT_DOUBLE_EQ(share_at({}, 1e9), 1);
}

}  // namespace
}  // namespace lockstep::simulator
