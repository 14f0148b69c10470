// The interpreter itself: instructions against values that follow from the PTX ISA's definitions, and small kernels
// that do one thing wrongly, which must be refused, beside their right forms, which must not.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "collectives/backends/places.h"
#include "testing/ptx/equal_mutants.h"
#include "testing/ptx/machine.h"
#include "testing/ptx/module.h"
#include "testing/ptx/mutant_runs.h"
#include "testing/ptx/mutants.h"
#include "testing/ptx/program.h"

namespace lockstep::ptx {
namespace {

std::shared_ptr<const Entry> entry_of(const std::string& body, const std::string& shared = "") {
  const auto path = std::filesystem::temp_directory_path() / ("ptx_test_" + std::to_string(::getpid()) + ".ptx");
  std::ofstream(path) << ".version 9.0\n.target sm_90a\n.address_size 64\n"
                      << shared << "\n.visible .entry kernel(\n\t.param .u64 kernel_param_0\n)\n{\n"
                      << "\t.reg .pred %p<9>;\n\t.reg .b16 %rs<9>;\n\t.reg .f32 %f<9>;\n\t.reg .f64 %fd<9>;\n"
                      << "\t.reg .b32 %r<32>;\n\t.reg .b64 %rd<32>;\n\tld.param.u64 %rd0, [kernel_param_0];\n"
                      << body << "\n\tret;\n}\n";
  const Module module = Module::read(path.string());
  std::filesystem::remove(path);
  return module.entry("kernel");
}

struct KernelRun {
  std::shared_ptr<const Entry> entry;
  unsigned blocks = 1;
  unsigned threads = 32;
  unsigned cluster = 1;
  std::vector<std::uint64_t> memory = std::vector<std::uint64_t>(1024);  // the kernel's parameter points to it
  std::uint64_t seed = 1;
  bool initialized = true;

  // Runs to the end; returns the fault's text, "" if there was none.
  std::string operator()() {
    Machine machine({.seed = seed});
    machine.memory().add(memory.data(), 8 * memory.size(), initialized);
    cuda_stand_in::Launch launch;
    launch.number = 1;
    launch.kernel = "kernel";
    launch.grid.x = blocks;
    launch.block.x = threads;
    launch.cluster.x = cluster;
    launch.parameters.resize(8);
    const std::uint64_t* const data = memory.data();
    std::memcpy(launch.parameters.data(), &data, 8);
    try {
      machine.begin(launch, std::make_shared<const Program>(entry));
      while (!machine.idle()) machine.run(10);
    } catch (const Fault& fault) {
      return fault.what();
    }
    return "";
  }
};

// Faults of some seeds, one of them at least: schedules differ.
std::string fault_of(const std::string& body, const std::string& shared = "", unsigned blocks = 1,
                     unsigned threads = 64, unsigned cluster = 1) {
  const auto entry = entry_of(body, shared);
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    std::string text =
        KernelRun{.entry = entry, .blocks = blocks, .threads = threads, .cluster = cluster, .seed = seed}();
    if (!text.empty()) return text;
  }
  return "";
}

void expect_fault(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "fault: '" << text << "'";
}

// --- Instructions ---

std::uint64_t bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
std::uint64_t bits(double x) {
  return std::bit_cast<std::uint64_t>(x);
}
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Row {
  std::string instruction;  // computes %r9, %rd9, %f8, %fd8, %rs8 or %p8 from registers 1 to 3
  std::array<std::uint64_t, 3> inputs;
  std::uint64_t expected;
};

const std::vector<Row> kRows{
    // Integers wrap; products have low, high and wide halves; division by zero gives ones.
    {"add.s32 %r9, %r1, %r2", {0x7fffffff, 1, 0}, 0x80000000},
    {"add.s64 %rd9, %rd1, %rd2", {0xffffffff, 1, 0}, 0x100000000},
    {"sub.s32 %r9, %r1, %r2", {0, 1, 0}, 0xffffffff},
    {"mul.lo.s32 %r9, %r1, %r2", {0x10001, 0x10001, 0}, 0x20001},
    {"mul.hi.u32 %r9, %r1, %r2", {0xffffffff, 0xffffffff, 0}, 0xfffffffe},
    {"mul.hi.s32 %r9, %r1, %r2", {0xffffffff, 2, 0}, 0xffffffff},
    {"mul.hi.u64 %rd9, %rd1, %rd2", {~0ULL, ~0ULL, 0}, ~0ULL - 1},
    {"mul.wide.s32 %rd9, %r1, %r2", {0xffffffff, 3, 0}, static_cast<std::uint64_t>(-3)},
    {"mul.wide.u32 %rd9, %r1, %r2", {0xffffffff, 3, 0}, 0x2fffffffd},
    {"mad.lo.s32 %r9, %r1, %r2, %r3", {3, 0xffffffff, 10}, 7},
    {"mad.wide.s32 %rd9, %r1, %r2, %rd3", {0xffffffff, 2, 5}, 3},
    {"div.s32 %r9, %r1, %r2", {static_cast<std::uint32_t>(-7), 2, 0}, static_cast<std::uint32_t>(-3)},
    {"div.u32 %r9, %r1, %r2", {7, 0, 0}, 0xffffffff},
    {"div.s32 %r9, %r1, %r2", {0x80000000, 0xffffffff, 0}, 0x80000000},
    {"rem.s32 %r9, %r1, %r2", {static_cast<std::uint32_t>(-7), 2, 0}, static_cast<std::uint32_t>(-1)},
    {"min.s32 %r9, %r1, %r2", {0xffffffff, 1, 0}, 0xffffffff},
    {"min.u32 %r9, %r1, %r2", {0xffffffff, 1, 0}, 1},
    {"neg.s32 %r9, %r1", {0x80000000, 0, 0}, 0x80000000},
    {"abs.s32 %r9, %r1", {0xfffffffb, 0, 0}, 5},
    // Shifts by the width and more.
    {"shl.b32 %r9, %r1, %r2", {1, 32, 0}, 0},
    {"shl.b64 %rd9, %rd1, %r2", {1, 40, 0}, 1ULL << 40},
    {"shr.u32 %r9, %r1, %r2", {0x80000000, 33, 0}, 0},
    {"shr.s32 %r9, %r1, %r2", {0x80000000, 40, 0}, 0xffffffff},
    {"shr.s32 %r9, %r1, %r2", {0xfffffff0, 2, 0}, 0xfffffffc},
    {"shf.l.wrap.b32 %r9, %r1, %r2, %r3", {0x80000000, 1, 1}, 3},
    // Bits.
    {"popc.b32 %r9, %r1", {0xf0f0, 0, 0}, 8},
    {"clz.b32 %r9, %r1", {0x00010000, 0, 0}, 15},
    {"brev.b32 %r9, %r1", {1, 0, 0}, 0x80000000},
    {"bfi.b32 %r9, %r1, %r2, 4, 8", {0xab, 0xffffffff, 0}, 0xfffffabf},
    {"bfe.u32 %r9, %r1, 4, 8", {0xabcd, 0, 0}, 0xbc},
    {"bfe.s32 %r9, %r1, 4, 8", {0x0800, 0, 0}, 0xffffff80},
    {"prmt.b32 %r9, %r1, %r2, 0x7610", {0x33221100, 0x77665544, 0}, 0x77661100},
    {"prmt.b32 %r9, %r1, %r2, 0x8888", {0x00000080, 0, 0}, 0xffffffff},
    {"lop3.b32 %r9, %r1, %r2, %r3, 0x96", {0xff00, 0x0ff0, 0x00ff}, 0xf00f},
    {"not.b32 %r9, %r1", {0x0f, 0, 0}, 0xfffffff0},
    // Reals: a number wins over NaN, results are rounded once.
    {"min.f32 %f8, %f1, %f2", {bits(kNan), bits(2.0F), 0}, bits(2.0F)},
    {"max.f32 %f8, %f1, %f2", {bits(-0.0F), bits(0.0F), 0}, bits(0.0F)},
    {"fma.rn.f32 %f8, %f1, %f2, %f3", {bits(1.0F + 0x1p-23F), bits(1.0F - 0x1p-23F), bits(-1.0F)}, bits(-0x1p-46F)},
    {"fma.rm.f32 %f8, %f1, %f2, %f3", {bits(1.0F), bits(1.0F), bits(0x1p-30F)}, bits(1.0F)},
    {"fma.rm.f32 %f8, %f1, %f2, %f3", {bits(-1.0F), bits(1.0F), bits(-0x1p-30F)}, bits(-1.0F - 0x1p-23F)},
    {"rcp.rn.f32 %f8, %f1", {bits(3.0F), 0, 0}, bits(1.0F / 3.0F)},
    {"sqrt.rn.f64 %fd8, %fd1", {bits(2.0), 0, 0}, bits(std::sqrt(2.0))},
    {"ex2.approx.ftz.f32 %f8, %f1", {bits(-127.0F), 0, 0}, bits(0.0F)},
    {"ex2.approx.ftz.f32 %f8, %f1", {bits(-kInfinity), 0, 0}, bits(0.0F)},
    {"copysign.f32 %f8, %f1, %f2", {bits(-2.0F), bits(3.0F), 0}, bits(-3.0F)},
    // Conversions: ties to even, clamps, NaN.
    {"cvt.rni.s32.f32 %r9, %f1", {bits(2.5F), 0, 0}, 2},
    {"cvt.rzi.s32.f32 %r9, %f1", {bits(-2.7F), 0, 0}, static_cast<std::uint32_t>(-2)},
    {"cvt.rzi.s32.f32 %r9, %f1", {bits(1e20F), 0, 0}, 0x7fffffff},
    {"cvt.rzi.s32.f32 %r9, %f1", {bits(-1e20F), 0, 0}, 0x80000000},
    {"cvt.rzi.u32.f32 %r9, %f1", {bits(-3.0F), 0, 0}, 0},
    {"cvt.rni.s32.f32 %r9, %f1", {bits(kNan), 0, 0}, 0},
    {"cvt.rn.f32.s32 %f8, %r1", {0x7fffffff, 0, 0}, bits(0x1p31F)},
    {"cvt.rn.f32.s64 %f8, %rd1", {(1ULL << 40) + (1ULL << 15), 0, 0}, bits(0x1p40F)},
    {"cvt.sat.f32.f32 %f8, %f1", {bits(1.5F), 0, 0}, bits(1.0F)},
    {"cvt.rn.f32.f64 %f8, %fd1", {bits(1.0 + 0x1p-24), 0, 0}, bits(1.0F)},
    {"cvt.s64.s32 %rd9, %r1", {0xffffffff, 0, 0}, ~0ULL},
    {"cvt.s64.s32 %rd9, %rd1", {0xabcdef00ffffffff, 0, 0}, ~0ULL},
    {"cvt.s32.s8 %r9, %r1", {0x80, 0, 0}, 0xffffff80},
    {"cvt.u16.u32 %rs8, %r1", {0x12345678, 0, 0}, 0x5678},
    {"cvt.rn.bf16x2.f32 %r9, %f1, %f2", {bits(1.0F), bits(-2.0F), 0}, 0x3f80c000},
    {"cvt.rn.f16x2.f32 %r9, %f1, %f2", {bits(65520.0F), bits(1.0F), 0}, 0x7c003c00},
    {"cvt.rn.satfinite.e4m3x2.f32 %rs8, %f1, %f2", {bits(1000.0F), bits(1.0F), 0}, 0x7e38},
    {"cvt.rn.satfinite.e5m2x2.f32 %rs8, %f1, %f2", {bits(-1e9F), bits(kNan), 0}, 0xfb7f},
    {"cvt.rn.f16x2.e4m3x2 %r9, %rs1", {0x7e38, 0, 0}, 0x5f003c00},
    // Comparisons of NaN, selection.
    {"setp.lt.f32 %p8, %f1, %f2", {bits(kNan), bits(1.0F), 0}, 0},
    {"setp.ltu.f32 %p8, %f1, %f2", {bits(kNan), bits(1.0F), 0}, 1},
    {"setp.ne.f32 %p8, %f1, %f2", {bits(kNan), bits(kNan), 0}, 0},
    {"setp.gt.s32 %p8, %r1, %r2", {0xffffffff, 0, 0}, 0},
    {"setp.gt.u32 %p8, %r1, %r2", {0xffffffff, 0, 0}, 1},
    {"mov.b32 {%rs8, %rs7}, %r1", {0x12345678, 0, 0}, 0x5678},
    {"mov.b64 %rd9, {%r1, %r2}", {0x11111111, 0x22222222, 0}, 0x2222222211111111},
};

// The register that an instruction writes, as text that stores it to [%rd0].
std::string store_of(const std::string& instruction) {
  if (instruction.find("%p8") != std::string::npos) return "selp.u32 %r30, 1, 0, %p8;\nst.global.u32 [%rd0], %r30;";
  if (instruction.find("%rs8") != std::string::npos) return "st.global.u16 [%rd0], %rs8;";
  if (instruction.find("%fd8") != std::string::npos) return "st.global.f64 [%rd0], %fd8;";
  if (instruction.find("%f8") != std::string::npos) return "st.global.f32 [%rd0], %f8;";
  if (instruction.find("%rd9") != std::string::npos) return "st.global.u64 [%rd0], %rd9;";
  return "st.global.u32 [%rd0], %r9;";
}

TEST(PtxInstructions, ComputeWhatTheIsaSays) {
  for (const Row& row : kRows) {
    std::string body = "mov.u32 %r31, %tid.x;\nsetp.ne.s32 %p1, %r31, 0;\n@%p1 ret;\n";
    for (int i = 1; i <= 3; ++i) {
      body += fmt::format(
          "ld.global.u64 %rd{0}, [%rd0+{1}];\ncvt.u32.u64 %r{0}, %rd{0};\nmov.b32 %f{0}, %r{0};\nmov.b64 %fd{0}, "
          "%rd{0};\n"
          "cvt.u16.u32 %rs{0}, %r{0};\n",
          i, 8 * i);
    }
    KernelRun run{.entry = entry_of(body + row.instruction + ";\n" + store_of(row.instruction))};
    run.memory[0] = 0;
    for (std::size_t i = 0; i < 3; ++i) run.memory[i + 1] = row.inputs[i];
    EXPECT_EQ(run(), "") << row.instruction;
    EXPECT_EQ(run.memory[0], row.expected) << row.instruction << std::hex << " of " << row.inputs[0] << ", "
                                           << row.inputs[1] << ": " << run.memory[0] << " for " << row.expected;
  }
}

TEST(PtxInstructions, TheHalfOfAWordThatIsMaskedOutMayBeUndefined) {
  const std::string word = "ld.global.u32 %r1, [%rd0];\nmov.b32 {%rs1, %rs2}, %r1;\nmov.b32 %r2, {%rs7, %rs2};\n";
  const std::string use = "and.b32 %r3, %r2, -65536;\nst.global.u32 [%rd0+64], %r3;";
  KernelRun run{.entry = entry_of("mov.u32 %r31, %tid.x;\nsetp.ne.s32 %p1, %r31, 0;\n@%p1 ret;\n" + word + use)};
  run.memory[0] = 0x12345678;
  EXPECT_EQ(run(), "");
  EXPECT_EQ(run.memory[8], 0x12340000U);
}

TEST(PtxInstructions, LinesAreThoseOfTheFile) {
  const auto path = std::filesystem::temp_directory_path() / ("lines_" + std::to_string(::getpid()) + ".ptx");
  std::ofstream(path) << ".version 9.0\n.target sm_90\n.address_size 64\n.entry first()\n.maxntid 512, 1, 1\n"
                         ".minnctapersm 2\n{\n\tret;\n}\n.entry second()\n.maxntid 32, 1, 1\n{\n\tret;\n}\n";
  const Module module = Module::read(path.string());
  std::filesystem::remove(path);
  EXPECT_EQ(module.entry("first")->instructions.at(0).line, 8);
  EXPECT_EQ(module.entry("second")->instructions.at(0).line, 13);
}

TEST(PtxInstructions, AnUnknownOneIsNamed) {
  try {
    Program program(entry_of("frobnicate.u32 %r1, %r2;"));
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find("'frobnicate.u32' is not an instruction that the interpreter has"),
              std::string::npos);
  }
}

// --- What hardware would do wrongly ---

const std::string kShared = ".shared .align 16 .b8 words[1024];";
// Each thread has its own word of shared memory at %r2 and its neighbour's in the next warp at %r3.
const std::string kAddresses =
    "mov.u32 %r1, %tid.x;\nmov.u32 %r4, words;\nshl.b32 %r5, %r1, 2;\nadd.s32 %r2, %r4, %r5;\nxor.b32 %r6, %r5, 128;\n"
    "add.s32 %r3, %r4, %r6;\ncvt.u64.u32 %rd1, %r5;\nadd.s64 %rd2, %rd0, %rd1;\n";

TEST(PtxRaces, AStoreToSharedMemoryIsReadAfterABarrier) {
  const std::string write = "st.shared.u32 [%r2], %r1;\n";
  const std::string read = "ld.shared.u32 %r7, [%r3];\n";
  EXPECT_EQ(fault_of(kAddresses + write + "bar.sync 0;\n" + read, kShared), "");
  expect_fault(fault_of(kAddresses + write + read, kShared), "without order between them");
}

TEST(PtxRaces, LanesOfAWarpMeetBeforeTheyReadEachOthersWords) {
  const std::string write = "xor.b32 %r6, %r5, 4;\nadd.s32 %r3, %r4, %r6;\nst.shared.u32 [%r2], %r1;\n";
  const std::string read = "ld.shared.u32 %r7, [%r3];\nst.global.u32 [%rd2], %r7;";
  EXPECT_EQ(fault_of(kAddresses + write + "bar.warp.sync -1;\n" + read, kShared, 1, 32), "");
  expect_fault(fault_of(kAddresses + write + read, kShared, 1, 32), "without order between them");
}

// Block 0 stores a number, then a flag; block 1 waits for the flag and reads the number.
std::string message(const std::string& store, const std::string& load) {
  return "mov.u32 %r1, %tid.x;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 ret;\nmov.u32 %r2, %ctaid.x;\nsetp.ne.s32 %p2, %r2, 0;\n"
         "@%p2 bra $wait;\nst.global.u32 [%rd0+64], 7;\nmov.u32 %r4, 1;\n" +
         store + " [%rd0], %r4;\nret;\n$wait:\n" + load +
         " %r3, [%rd0];\nsetp.eq.s32 %p3, %r3, 0;\n@%p3 bra $wait;\nld.global.u32 %r4, [%rd0+64];\nst.global.u32 "
         "[%rd0+128], %r4;";
}

TEST(PtxRaces, AReleaseIsSeenByAnAcquireOfItsScope) {
  EXPECT_EQ(fault_of(message("st.release.gpu.global.u32", "ld.acquire.gpu.global.u32"), "", 2), "");
  expect_fault(fault_of(message("st.relaxed.gpu.global.u32", "ld.acquire.gpu.global.u32"), "", 2), "without order");
  expect_fault(fault_of(message("st.release.gpu.global.u32", "ld.relaxed.gpu.global.u32"), "", 2), "without order");
  expect_fault(fault_of(message("st.release.cta.global.u32", "ld.acquire.gpu.global.u32"), "", 2), "without order");
  EXPECT_EQ(fault_of(message("fence.acq_rel.gpu;\nst.relaxed.gpu.global.u32",
                             "ld.relaxed.gpu.global.u32 %r3, [%rd0];\nfence.acq_rel.gpu;\nld.relaxed.gpu.global.u32"),
                     "", 2)
                .find("deadlock"),
            std::string::npos);
}

TEST(PtxCopies, AreReadAfterTheirWait) {
  const std::string copy = kAddresses + "cp.async.ca.shared.global [%r2], [%rd2], 4;\ncp.async.commit_group;\n";
  const std::string read = "ld.shared.u32 %r7, [%r2];\nst.global.u32 [%rd2], %r7;\ncp.async.wait_all;";
  EXPECT_EQ(fault_of(copy + "cp.async.wait_group 0;\n" + read, kShared), "");
  expect_fault(fault_of(copy + "cp.async.wait_group 1;\n" + read, kShared), "asynchronous copy may still write");
}

TEST(PtxMemory, AccessesAreInsideAlignedAndOfWrittenBytes) {
  expect_fault(fault_of("ld.global.u32 %r1, [%rd0+8190];"), "not a multiple of 4");
  expect_fault(fault_of("ld.global.u32 %r1, [%rd0+8192];"), "which no allocation has");
  expect_fault(fault_of("mov.u32 %r1, words;\nst.shared.u32 [%r1+1024], %r1;", kShared), "which has 1024 bytes");
  expect_fault(fault_of("mov.u32 %r1, words;\nld.shared.u32 %r2, [%r1];\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 ret;", kShared),
               "a value that nobody has written");
  expect_fault(fault_of("add.s32 %r1, %r2, 1;\nsetp.eq.s32 %p1, %r1, 0;\n@%p1 ret;"),
               "a value that nobody has written");
  expect_fault(fault_of("st.global.u32 [%rd0], %r2;"), "stores a value that nobody has written");
}

TEST(PtxBarriers, ThatCannotEndAreReported) {
  // One warp of two waits for both.
  expect_fault(
      fault_of("mov.u32 %r1, %tid.x;\nsetp.gt.s32 %p1, %r1, 31;\n@%p1 bra $other;\nbarrier.cta.sync.aligned 1, "
               "64;\nret;\n$other:\nbarrier.cta.sync.aligned 2, 64;"),
      "no warp can go on");
  // Half a warp is at a barrier for all of it.
  expect_fault(
      fault_of("mov.u32 %r1, %tid.x;\nsetp.gt.s32 %p1, %r1, 15;\n@%p1 bra $other;\nbar.sync 0;\nret;\n$other:\n"
               "bar.warp.sync -1;",
               "", 1, 32),
      "wait for each other");
}

TEST(PtxBarriers, ABlockOfAClusterStaysUntilOthersHaveReadItsMemory) {
  const std::string meet = "barrier.cluster.arrive;\nbarrier.cluster.wait;\n";
  const std::string read =
      "mov.u32 %r1, words;\nst.shared.u32 [%r1], 7;\n" + meet +
      "mov.u32 %r2, %cluster_ctarank;\nxor.b32 %r2, %r2, 1;\nmapa.shared::cluster.u32 %r3, %r1, %r2;\n"
      "ld.shared::cluster.u32 %r4, [%r3];\n";
  EXPECT_EQ(fault_of(read + meet, kShared, 2, 32, 2), "");
  expect_fault(fault_of(read, kShared, 2, 32, 2), "which has ended");
}

TEST(PtxBarriers, AWordInSharedMemoryEndsItsPhaseAfterItsArrivals) {
  const std::string begin =
      "mov.u32 %r1, %tid.x;\nmov.u32 %r2, words;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 bra $begun;\n"
      "mbarrier.init.shared::cta.b64 [%r2], 64;\n$begun:\nbar.sync 0;\nshl.b32 %r5, %r1, 2;\nadd.s32 %r3, %r2, %r5;\n"
      "st.shared.u32 [%r3+64], %r1;\n";
  const std::string arrive = "mbarrier.arrive.shared::cta.b64 _, [%r2];\n";
  const std::string wait =
      "$wait:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;\n@!%p2 bra $wait;\nld.shared.u32 %r6, "
      "[%r2+128];\n";
  EXPECT_EQ(fault_of(begin + arrive + wait, kShared), "");
  expect_fault(fault_of(begin + arrive + "ld.shared.u32 %r6, [%r2+128];\n", kShared), "without order");
  expect_fault(fault_of(begin + wait, kShared), "no warp can go on");
}

// --- Residency: which blocks run at the same time ---

cuda_stand_in::Launch launch_of(std::uint64_t number, unsigned blocks, const std::vector<std::uint64_t>& memory) {
  cuda_stand_in::Launch launch;
  launch.number = number;
  launch.kernel = "kernel";
  launch.grid.x = blocks;
  launch.block.x = 128;
  launch.parameters.resize(8);
  const std::uint64_t* const data = memory.data();
  std::memcpy(launch.parameters.data(), &data, 8);
  return launch;
}

constexpr int kMultiprocessors = 8;

// Two ranks share a GPU. The first's collective waits for the second's, which comes after a product of the second whose
// blocks need a multiprocessor each. Returns the fault; "" if all kernels end.
std::string fault_of_collectives_beside_a_product(unsigned blocks) {
  std::vector<std::uint64_t> memory(1024);
  memory[1] = 2 * std::uint64_t{blocks};  // a collective's block counts itself, and waits until all of both ranks have
  const auto collective = std::make_shared<const Program>(
      entry_of("mov.u32 %r1, %tid.x;\nsetp.ne.s32 %p1, %r1, 0;\n@%p1 ret;\nld.global.u32 %r2, [%rd0+8];\n"
               "mov.u32 %r3, 1;\nred.release.gpu.global.add.u32 [%rd0], %r3;\n"
               "$wait:\nld.acquire.gpu.global.u32 %r4, [%rd0];\nsetp.ne.s32 %p2, %r4, %r2;\n@%p2 bra $wait;\n"));
  const auto product = std::make_shared<const Program>(entry_of(""));
  cuda_stand_in::Launch of_product = launch_of(2, 2 * kMultiprocessors, memory);
  of_product.dynamic_shared_bytes = std::size_t{227} << 10;
  Machine machine({.multiprocessors = kMultiprocessors});
  machine.memory().add(memory.data(), 8 * memory.size(), true);
  try {
    machine.begin(launch_of(1, blocks, memory), collective);
    machine.run(20);
    machine.begin(of_product, product);
    while (machine.is_running(2)) machine.run(10);
    machine.begin(launch_of(3, blocks, memory), collective);
    while (!machine.idle()) machine.run(10);
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "";
}

TEST(PtxResidency, CollectivesLeaveRoomForProductsThatPeersWaitFor) {
  expect_fault(fault_of_collectives_beside_a_product(kMultiprocessors), "no warp can go on");
  const auto most = backends::blocks_beside_compute(kMultiprocessors, 2, 1);
  EXPECT_EQ(fault_of_collectives_beside_a_product(static_cast<unsigned>(most.value())), "");
}

TEST(PtxMutants, AreMadeOfEverySynchronization) {
  const auto entry = entry_of(kAddresses + "st.shared.u32 [%r2], %r1;\nbar.sync 0;\nfence.acq_rel.gpu;\n", kShared);
  const std::vector<Mutation> all = mutations_of(*entry);
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].kind, "bar.sync");
  EXPECT_EQ(all[1].what, "left out");
  EXPECT_EQ(all[2].changed.opcode, "fence.acq_rel.cta");
}

// A file of mistakes that change nothing.
std::vector<EqualMutants> read_equal(const std::string& text) {
  const auto path = std::filesystem::temp_directory_path() / ("equal_" + std::to_string(::getpid()) + ".txt");
  std::ofstream(path) << text;
  const std::shared_ptr<void> at_the_end(nullptr, [&](void*) { std::filesystem::remove(path); });
  return read_equal_mutants(path.string());
}

TEST(PtxMutants, ThatChangeNothingAreNamedByKindEntryAndPlace) {
  const auto all = read_equal("# comment\n\nbar.sync | softmax | left out, bar.sync | only for speed\n");
  ASSERT_EQ(all.size(), 1U);
  EXPECT_EQ(all[0].why, "only for speed");
  Mutant mutant{.entry = "_Z7softmax",
                .mutation = {.what = "left out", .kind = "bar.sync", .changed = {}},
                .place = "bar.sync, PTX"};
  EXPECT_TRUE(all[0].contain(mutant));
  mutant.mutation.kind = "fence";
  EXPECT_FALSE(all[0].contain(mutant));
  EXPECT_TRUE(read_equal_mutants("").empty());
  try {
    read_equal("bar.sync | softmax | only for speed\n");
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string(error.what()).find(":1: 'bar.sync | softmax | only for speed'; allowed: KIND | ENTRY"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace lockstep::ptx
