// Counts of entries, what is read of ptxas and nvdisasm, and launches as files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/error.h"
#include "core/record_json.h"
#include "testing/ptx/compiled_code.h"
#include "testing/ptx/count_record.h"
#include "testing/ptx/launch_record.h"

namespace lockstep::ptx {
namespace {

namespace fs = std::filesystem;

// A folder that is removed with the test.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "ptx_count_test_XXXXXX").string();
    path_ = ::mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(path_ / name) << text; }

 private:
  fs::path path_;
};

// y[i] = factor x[i], for each thread's i; `more`: instructions before the store.
std::string scale_ptx(const std::string& more = "") {
  return R"(.version 9.0
.target sm_90
.address_size 64
.visible .entry scale(
	.param .u64 scale_param_0,
	.param .u64 scale_param_1,
	.param .f32 scale_param_2
)
{
	.reg .f32 	%f<4>;
	.reg .b32 	%r<5>;
	.reg .b64 	%rd<8>;
	ld.param.u64 	%rd1, [scale_param_0];
	ld.param.u64 	%rd2, [scale_param_1];
	ld.param.f32 	%f1, [scale_param_2];
	mov.u32 	%r1, %ctaid.x;
	mov.u32 	%r2, %ntid.x;
	mov.u32 	%r3, %tid.x;
	mad.lo.s32 	%r4, %r1, %r2, %r3;
	mul.wide.s32 	%rd3, %r4, 4;
	add.s64 	%rd4, %rd1, %rd3;
	add.s64 	%rd5, %rd2, %rd3;
	ld.global.f32 	%f2, [%rd5];
	mul.f32 	%f3, %f1, %f2;
)" + more +
         R"(	st.global.f32 	[%rd4], %f3;
	ret;
}
)";
}

const std::string kRecord = R"({
  "entry": "scale", "grid": 2, "block": 32, "elems": 64, "declared_bytes": 512,
  "parameters": [{"pointer": "y"}, {"pointer": "x", "offset": 4}, {"f32": 3}],
  "buffers": {"x": {"bytes": 260, "before": "x.f32"}, "y": {"bytes": 256, "after": "y.f32"}}
})";

// x = 0, 1, ..., 64; y is three times its part from 1 on.
void write_scale(const Folder& folder, const std::string& more = "", float wrong = 0) {
  folder.write("scale.ptx", scale_ptx(more));
  folder.write("first.json", kRecord);
  std::ofstream x(folder.file("x.f32"), std::ios::binary);
  std::ofstream y(folder.file("y.f32"), std::ios::binary);
  for (int i = 0; i < 65; ++i) {
    const auto value = static_cast<float>(i);
    const float product = 3 * value + (i == 40 ? wrong : 0);
    x.write(reinterpret_cast<const char*>(&value), sizeof value);
    if (i > 0) y.write(reinterpret_cast<const char*>(&product), sizeof product);
  }
}

LaunchOutcome outcome_of(const Folder& folder, std::uint64_t seed = 1) {
  Library library = Library::read(folder.path());
  const LaunchRecord record = read_record(folder.file("first.json"), library);
  return run_record(library, record, {.seed = seed, .steady = true});
}

TEST(PtxLaunchRecord, OfAnotherProjectIsRunAndCounted) {
  const Folder folder;
  write_scale(folder);
  const LaunchOutcome outcome = outcome_of(folder);
  EXPECT_EQ(outcome.errors, "");
  const Counts& counts = outcome.runs.counts;
  EXPECT_EQ(counts.warp_instructions, 2U * 14);
  EXPECT_EQ(counts.global_requests, 2U * 2);
  EXPECT_EQ(counts.global_sectors, 2U * (4 + 5));  // x begins 4 bytes after a sector
  EXPECT_EQ(counts.global_bytes_read, 256U);
  EXPECT_EQ(counts.global_bytes_written, 256U);
}

TEST(PtxLaunchRecord, NamesWhatIsNotAsExpected) {
  const Folder folder;
  write_scale(folder, "", 0.5F);
  EXPECT_EQ(outcome_of(folder).errors, "buffer y: 1 bytes differ, the first at 158\n");
}

TEST(PtxLaunchRecord, PlantedWorkRaisesItsCounts) {
  const Folder plain;
  write_scale(plain);
  const Counts before = outcome_of(plain).runs.counts;
  const Folder planted;
  write_scale(planted, "\tld.global.f32 \t%f2, [%rd5];\n");
  const Counts after = outcome_of(planted).runs.counts;
  EXPECT_EQ(after.warp_instructions, before.warp_instructions + 2);
  EXPECT_EQ(after.global_sectors, before.global_sectors + 10);
}

TEST(PtxLaunchRecord, IsWrittenAndReadBack) {
  const Folder folder;
  write_scale(folder);
  Library library = Library::read(folder.path());
  LaunchRecord record = read_record(folder.file("first.json"), library);
  record.buffers[1].before.assign(256, std::byte{0});
  const Folder other;
  other.write("scale.ptx", scale_ptx());
  write_record(other.path(), "first", record);
  EXPECT_EQ(outcome_of(other).errors, "");
  const auto json = core::parse_json<core::Json>(core::Json::parse(std::ifstream(other.file("first.json"))).dump(), "");
  EXPECT_EQ(json["parameters"][1]["pointers"], core::Json::parse(R"([{"at": 0, "buffer": "x", "offset": 4}])"));
  EXPECT_EQ(json["parameters"][2]["hex"], "00004040");
  EXPECT_EQ(json["buffers"]["y"]["initialized"], core::Json::array());
}

std::string refusal_of(const std::string& wrong, const std::string& right) {
  const Folder folder;
  write_scale(folder);
  std::string text = kRecord;
  text.replace(text.find(right), right.size(), wrong);
  folder.write("first.json", text);
  try {
    outcome_of(folder);
  } catch (const core::Error& error) {
    return error.what();
  }
  return "";
}

TEST(PtxLaunchRecord, RefusesWhatIsWrongInOneLine) {
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(refusal_of("scales", "scale"), "first.json: entry scales: no .ptx file of the folder has it"));
  EXPECT_TRUE(has(refusal_of(R"({"f64": 3})", R"({"f32": 3})"), "has 8 bytes; allowed: the entry's 4"));
  EXPECT_TRUE(has(refusal_of("{}", R"({"f32": 3})"), "allowed: pointer, hex, u8"));
  EXPECT_TRUE(has(refusal_of("128", "256"), "after has 256 bytes; allowed: its 128 bytes"));
  EXPECT_TRUE(has(refusal_of(R"("pointer": "z")", R"("pointer": "y")"), "points to buffer z; there is none"));
  EXPECT_TRUE(has(refusal_of(R"({"f32": 3}, {"i32": 1})", R"({"f32": 3})"), "4 parameters; allowed: the entry's 3"));
}

TEST(PtxCounts, DoNotDependOnTheSchedule) {
  const Folder folder;
  write_scale(folder);
  const EntryRuns first = outcome_of(folder, 1).runs;
  for (std::uint64_t seed = 2; seed < 6; ++seed) {
    const EntryRuns again = outcome_of(folder, seed).runs;
    EXPECT_EQ(again.counts, first.counts);
    EXPECT_EQ(again.executed, first.executed);
  }
}

// Warps wait in shared memory for the last of them, and lanes of each take two ways.
TEST(PtxCounts, OfWaitsDoNotDependOnTheSchedule) {
  const Folder folder;
  folder.write("first.json", R"({"entry": "wait", "grid": 3, "block": 128, "parameters": [], "buffers": {}})");
  folder.write("wait.ptx", R"(.version 9.0
.target sm_90
.address_size 64
.visible .entry wait()
{
	.reg .pred 	%p<4>;
	.reg .b32 	%r<8>;
	.shared .align 8 .b8 words[64];
	mov.u32 	%r1, %tid.x;
	mov.u32 	%r2, words;
	setp.ne.s32 	%p1, %r1, 0;
	@%p1 bra 	$begun;
	mbarrier.init.shared::cta.b64 	[%r2], 128;
$begun:
	bar.sync 	0;
	and.b32 	%r3, %r1, 1;
	setp.eq.s32 	%p2, %r3, 0;
	@%p2 bra 	$even;
	add.s32 	%r4, %r1, 1;
	add.s32 	%r4, %r4, 1;
$even:
	mbarrier.arrive.shared::cta.b64 	_, [%r2];
$wait:
	mbarrier.try_wait.parity.shared::cta.b64 	%p3, [%r2], 0;
	@!%p3 bra 	$wait;
	ret;
}
)");
  const Counts first = outcome_of(folder, 1).runs.counts;
  for (std::uint64_t seed = 2; seed < 10; ++seed) EXPECT_EQ(outcome_of(folder, seed).runs.counts, first);
}

TEST(PtxCompiledCode, IsReadFromPtxas) {
  const auto entries = read_ptxas(R"(ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z1av' for 'sm_90'
ptxas info    : Function properties for _Z1av
    16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes smem
ptxas info    : Function properties for _Z1bv
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers
)");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries.at("_Z1av").registers, 255);
  EXPECT_EQ(entries.at("_Z1av").spill_bytes, 12);
  EXPECT_EQ(entries.at("_Z1bv").registers, 12);
}

// A loop of lines 5 to 7 that ptxas has unrolled twice, with a rest of its own.
const std::string kSass = R"(//--------------------- .text._Z1av
	.section	.text._Z1av,"ax",@progbits
.text._Z1av:
	//## File ".nv_debug_ptx_txt", line 4
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_1:
	//## File ".nv_debug_ptx_txt", line 5
        /*0010*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
	//## File ".nv_debug_ptx_txt", line 6
        /*0020*/                   FADD R4, R4, R5 ;
        /*0030*/              @!P2 LDG.E.128 R4, desc[UR4][R2.64] ;
	//## File ".nv_debug_ptx_txt", line 5
        /*0040*/                   LDG.E.128 R4, desc[UR4][R2.64] ;
	//## File ".nv_debug_ptx_txt", line 6
        /*0050*/                   MUFU.EX2 R4, R4 ;
	//## File ".nv_debug_ptx_txt", line 7
        /*0060*/               @P0 BRA `(.L_x_1) ;
	//## File ".nv_debug_ptx_txt", line 8
        /*0070*/                   EXIT ;
        /*0080*/                   NOP ;
	.section	.nv.info,"",@"SHT_CUDA_INFO"
        /*0000*/ 	.byte	0x04
)";

TEST(PtxCompiledCode, IsReadFromNvdisasmInBlocks) {
  const auto blocks = read_nvdisasm(kSass).at("_Z1av");
  std::string text;
  for (const SassBlock& block : blocks) {
    for (const SassInstruction& one : block) text += one.operation + "@" + std::to_string(one.ptx_line) + " ";
    if (!block.empty()) text += "| ";
  }
  EXPECT_EQ(text, "LDC@4 | LDG.E.128@5 FADD@6 LDG.E.128@6 LDG.E.128@5 MUFU.EX2@6 BRA@7 | EXIT@8 | ");
}

TEST(PtxCompiledCode, CopiesOfALoopShareItsRounds) {
  const auto blocks = read_nvdisasm(kSass).at("_Z1av");
  // The loads of line 5 ran 100 times in two copies: the block has 50 rounds.
  const SassCounts counts = executed_sass(blocks, {{4, 1}, {5, 100}, {6, 50}, {7, 100}, {8, 1}});
  EXPECT_EQ(counts.instructions, 1 + 6 * 50 + 1);
  EXPECT_EQ(counts.special, 50);
}

TEST(PtxCountRecord, NamesAnEntryShortly) {
  EXPECT_EQ(
      short_name_of("_ZN8lockstep7kernels18elementwise_kernelILi4ELi2ENS0_46_GLOBAL__N__00000000_13_activation_cu_"
                    "0000000013GeluOperationIfEEEEvT1_l"),
      "elementwise_kernel<4, 2, GeluOperation<float>>");
  EXPECT_EQ(short_name_of("scale"), "scale");
}

TEST(PtxCountRecord, HasResidencyByRegistersAndSharedMemory) {
  const Folder folder;
  write_scale(folder);
  Library library = Library::read(folder.path());
  EntryRuns runs = outcome_of(folder).runs;
  runs.last.block = {256, 1, 1};
  runs.last.dynamic_shared_bytes = 64 << 10;
  const auto of = [&](int registers) {
    const std::string line = count_line("r", {.kernel = "scale", .shape = "N64", .dtype = "f32"},
                                        *library.entry("scale"), runs, {.registers = registers});
    return core::parse_json<core::Json>(line, "").at("resident_blocks").get<int>();
  };
  EXPECT_EQ(of(32), 3);   // 228 KiB of 65
  EXPECT_EQ(of(128), 2);  // 64 Ki registers of 32 Ki
}

}  // namespace
}  // namespace lockstep::ptx
