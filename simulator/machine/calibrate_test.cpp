#include "simulator/machine/calibrate.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace lockstep::simulator {
namespace {

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

TEST(Calibrate, SaysWhatIsMissing) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      calibrate(read_record_lines(text, "r.jsonl"), "r.jsonl");
    } catch (const core::Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(rows()), "r.jsonl: no records of ceilings; kernels_bench --json writes them");
  EXPECT_EQ(refusal(ceiling("gemm", "", "bf16", 5)),
            "r.jsonl: no record of the ceiling 'fma'; kernels_bench --json writes them");
  EXPECT_NE(refusal(ceilings()).find("r.jsonl: no two or more measured rows"), std::string::npos);
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
