// Sweeps end to end on test devices that behave like GPUs, but are the CPU.
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "bench/collective_perf/flags.h"
#include "bench/collective_perf/session.h"
#include "bench/collective_perf/sweep.h"
#include "collectives/backends/backend.h"
#include "collectives/backends/places.h"
#include "collectives/executors/executors.h"
#include "collectives/transports/local_world.h"
#include "core/device.h"
#include "core/error.h"
#include "core/wait.h"
#include "testing/core/fake_nvml.h"
#include "testing/core/forwarding_device.h"
#include "testing/core/thrown.h"

namespace lockstep::sweep {

// A test device that behaves like a GPU, on the CPU: the host reaches its memory by copies only, and work that is
// queued on its stream runs when the host waits for it, not before.
class QueueStream final : public core::Stream {
 public:
  using Work = std::function<void()>;

  std::string owner;  // transport whose work is queued, if the test sets it

  void queue(Work work) { (capturing_ ? captured_ : queued_).push_back(std::move(work)); }
  void synchronize() override {
    LOCKSTEP_CHECK(!capturing_, "a stream that is captured is not waited for");
    for (const Work& work : std::exchange(queued_, {})) work();
    owner.clear();
  }
  bool done() override { return queued_.empty(); }
  void* native() const override { return nullptr; }
  void wait(const core::Event& /*event*/) override {}

  bool can_capture() const override { return true; }
  void begin_capture() override { capturing_ = true; }
  std::unique_ptr<core::Graph> end_capture() override;

 private:
  std::vector<Work> queued_;
  std::vector<Work> captured_;
  bool capturing_ = false;
};

class QueueGraph final : public core::Graph {
 public:
  explicit QueueGraph(std::vector<QueueStream::Work> works) : works_(std::move(works)) {}
  void launch(core::Stream& stream) override {
    for (const QueueStream::Work& work : works_) dynamic_cast<QueueStream&>(stream).queue(work);
  }

 private:
  std::vector<QueueStream::Work> works_;
};

inline std::unique_ptr<core::Graph> QueueStream::end_capture() {
  capturing_ = false;
  return std::make_unique<QueueGraph>(std::exchange(captured_, {}));
}

class QueueEvent final : public core::Event {
 public:
  void record(core::Stream& stream) override {
    dynamic_cast<QueueStream&>(stream).queue([this] {
      passed_at_ = core::Clock::now();
      done_ = true;
    });
  }
  void synchronize() override { LOCKSTEP_CHECK(done_, "the stream has been waited for"); }
  bool done() override { return done_; }
  double us_since(const core::Event& start) const override {
    const auto& other = dynamic_cast<const QueueEvent&>(start);
    LOCKSTEP_CHECK(done_ && other.done_, "times are of events that are passed");
    return core::us_between(other.passed_at_, passed_at_);
  }
  void* native() const override { return nullptr; }

 private:
  core::Clock::time_point passed_at_;
  bool done_ = false;
};

class QueueDevice final : public core::ForwardingDevice {
 public:
  explicit QueueDevice(int index) : index_(index) {}

  std::string name() const override { return "Test GPU"; }
  int index() const override { return index_; }
  bool computes() const override { return all_compute; }
  void copy_to_device(void* to, const void* from, std::size_t size_bytes) override {
    EXPECT_TRUE(all_compute) << "nobody reads inputs";
    ForwardingDevice::copy_to_device(to, from, size_bytes);
  }

  static inline bool all_compute = true;

  void copy_on(core::Stream& stream, void* to, const void* from, std::size_t size_bytes) override {
    dynamic_cast<QueueStream&>(stream).queue([=, this] { copy_to_host(to, from, size_bytes); });
  }
  void zero_on(core::Stream& stream, void* memory, std::size_t size_bytes) override {
    dynamic_cast<QueueStream&>(stream).queue(
        [=, this] { ForwardingDevice::zero_on(*cpu_stream_, memory, size_bytes); });
  }

  std::unique_ptr<core::Stream> make_stream() override { return std::make_unique<QueueStream>(); }
  std::unique_ptr<core::Event> make_event() override { return std::make_unique<QueueEvent>(); }

 private:
  const int index_;
  const std::unique_ptr<core::Stream> cpu_stream_ = cpu().make_stream();
};

// Sweeps end to end on two test devices that behave like GPUs; their ranks run plans by the direct executor.
namespace {

constexpr std::size_t kGpuBytes = std::size_t{1} << 30;

std::vector<core::CudaDeviceInfo> two_gpus() {
  core::CudaDeviceInfo gpu{.index = 0,
                           .name = "Test GPU",
                           .memory_bytes = kGpuBytes,
                           .pci_id = "0000:1b:00.0",
                           .uuid = {},
                           .compute_capability = 90,
                           .num_multiprocessors = 132,
                           .clock_mhz = 1980};
  std::vector<core::CudaDeviceInfo> gpus{gpu, gpu};
  gpus[1].index = 1;
  gpus[1].pci_id = "0000:43:00.0";
  return gpus;
}

std::optional<std::string> always_there() {
  return std::nullopt;
}

// Transports of which rank 0 has run calls, in order; repeats in a row count once.
std::vector<std::string>& turns() {
  static std::vector<std::string> transports;
  return transports;
}

// Runs when the stream is waited for, and never after another transport's work.
class QueuedCollective final : public collectives::Collective {
 public:
  QueuedCollective(std::unique_ptr<collectives::Collective> collective, QueueStream& stream, std::string transport,
                   bool records)
      : collective_(std::move(collective)), stream_(stream), transport_(std::move(transport)), records_(records) {}
  void run(const void* input, void* output) override {
    LOCKSTEP_CHECK(stream_.owner.empty() || stream_.owner == transport_, "two transports are in flight");
    stream_.owner = transport_;
    if (records_ && (turns().empty() || turns().back() != transport_)) turns().push_back(transport_);
    stream_.queue([this, input, output] { collective_->run(input, output); });
  }

 private:
  std::unique_ptr<collectives::Collective> collective_;
  QueueStream& stream_;
  const std::string transport_;
  const bool records_;
};

// Bytes that ranks have taken of each GPU, as CUDA would see it.
std::array<std::atomic<std::size_t>, 2>& taken() {
  static std::array<std::atomic<std::size_t>, 2> bytes{};
  return bytes;
}
std::size_t free_test_bytes(int device) {
  return kGpuBytes - taken().at(static_cast<std::size_t>(device));
}

backends::RankGpu open_test_gpu(transports::World& world, const backends::BackendOptions&) {
  backends::RankGpu gpu;
  gpu.device = std::make_unique<QueueDevice>(backends::assigned_gpu(world.rank(), world.num_ranks(), 2).device);
  gpu.stream = gpu.device->make_stream();
  return gpu;
}

// Runs plans by the direct executor; "library" is the ring.
class TestMember final : public backends::GpuMember {
 public:
  TestMember(transports::World& world, backends::RankGpu& gpu, std::string name,
             const backends::BackendOptions& options)
      : name_(std::move(name)),
        stream_(dynamic_cast<QueueStream&>(*gpu.stream)),
        endpoint_{world,
                  *gpu.device,
                  stream_,
                  [this](const collectives::Operation& operation, plan::Plan plan) {
                    return backends::prepared_plan(queued(plan, operation), name_, std::move(plan));
                  },
                  [this](const collectives::Operation& operation, std::string_view asked) {
                    take(std::size_t{1} << 18);  // as NCCL's first calls of a kind do
                    const plan::Plan ring = backends::plan_for(operation, endpoint_.world.num_ranks(), "ring");
                    return backends::Prepared{queued(ring, operation), std::string(asked), "library", std::nullopt};
                  },
                  [this] { stream_.synchronize(); }} {
    take(name_ == "nccl" ? std::size_t{3} << 20 : std::size_t{1} << 20);
    if (options.registration != libraries::NcclRegistration::none) register_buffers();
  }
  backends::Endpoint& endpoint() override { return endpoint_; }

 private:
  void take(std::size_t size_bytes) { taken().at(static_cast<std::size_t>(endpoint_.device.index())) += size_bytes; }

  void register_buffers() {
    const auto record_turn = [this](const char* what) {
      if (endpoint_.world.rank() == 0) turns().emplace_back(what);
    };
    endpoint_.buffers = {[this, record_turn](std::size_t size_bytes) {
                           record_turn("allocate");
                           EXPECT_EQ(size_bytes % (std::size_t{2} << 20), 0u) << "whole pages of 2 MiB";
                           return endpoint_.device.allocate(size_bytes);
                         },
                         [this, record_turn](void* memory) {
                           record_turn("release");
                           endpoint_.device.release(memory);
                         }};
  }

  std::unique_ptr<collectives::Collective> queued(const plan::Plan& plan, const collectives::Operation& operation) {
    auto& world = dynamic_cast<transports::LocalWorld&>(endpoint_.world);
    return std::make_unique<QueuedCollective>(executors::make_direct(plan, operation, world, {}), stream_, name_,
                                              world.rank() == 0);
  }

  const std::string name_;
  QueueStream& stream_;
  backends::Endpoint endpoint_;
};

std::unique_ptr<backends::GpuMember> join_test_cuda(transports::World& world, backends::RankGpu& gpu,
                                                    const backends::BackendOptions& options) {
  return std::make_unique<TestMember>(world, gpu, "cuda", options);
}
std::unique_ptr<backends::GpuMember> join_test_nccl(transports::World& world, backends::RankGpu& gpu,
                                                    const backends::BackendOptions& options) {
  return std::make_unique<TestMember>(world, gpu, "nccl", options);
}

constexpr backends::Backend kTestCuda{"cuda",   "cuda",          false,         always_there,  nullptr,
                                      two_gpus, free_test_bytes, open_test_gpu, join_test_cuda};
constexpr backends::Backend kTestNccl{"nccl",   "nccl",          true,          always_there,  nullptr,
                                      two_gpus, free_test_bytes, open_test_gpu, join_test_nccl};

class SweepOnDevices : public testing::Test {
 protected:
  SweepOnDevices() { std::filesystem::remove(records_); }
  ~SweepOnDevices() override { std::filesystem::remove(records_); }

  int run(const std::string& arguments, const std::string& program = "all_reduce_perf") {
    std::vector<std::string> words{program, "--transport", "cuda", "--json", records_};
    std::istringstream stream(arguments);
    for (std::string word; stream >> word;) words.push_back(word);
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    const SweepFlags flags = parse_sweep_flags(kind_, static_cast<int>(argv.size()), argv.data());
    SweepEnvironment environment;
    environment.find_backend = [](std::string_view name) -> const backends::Backend& {
      return name == "nccl" ? kTestNccl : kTestCuda;
    };
    if (look) environment.watch = [this](const std::vector<core::CudaDeviceInfo>&) { return look; };
    return run_sweep(flags, environment, nullptr, {[this](const std::string& text) { printed_ += text; }});
  }

  std::string refusal_of(const std::string& arguments) {
    return core::refusal_of([&] { run(arguments); });
  }

  // Returns the record of the run, then those of the rows.
  std::vector<nlohmann::json> records() const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(records_);
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  testing::AssertionResult has_printed(const std::string& text) const { return core::has(printed_, text); }

  const std::string records_ =
      (std::filesystem::temp_directory_path() / ("sweep_on_devices_" + std::to_string(getpid()) + ".jsonl")).string();
  std::string printed_;
  collectives::Kind kind_ = collectives::Kind::all_reduce;
  core::SteadyClocks::Look look;
};

TEST_F(SweepOnDevices, RanksShareGpusAndEveryRowIsVerified) {
  EXPECT_EQ(run("--ranks 5 -b 64 -e 64K -f 32 -n 4 --algo ring,two_shot"), 0) << printed_;
  EXPECT_TRUE(has_printed("# ranks 0,2,4 on device 0 Test GPU (3 ranks share it)\n"));
  EXPECT_TRUE(has_printed("# ranks 1,3 on device 1 Test GPU (2 ranks share it)\n"));
  EXPECT_TRUE(has_printed("device  1 [0000:43:00] Test GPU\n"));
  const auto lines = records();
  ASSERT_EQ(lines.size(), 1u + 3 * 2 * 2);  // the run; sizes, algorithms, placements
  EXPECT_EQ(lines[0]["machine"]["gpus"], (std::vector<std::string>{"Test GPU", "Test GPU"}));
  EXPECT_EQ(lines[0]["gpu"]["ranks_per_gpu"], 3);
  EXPECT_EQ(lines[0]["gpu"]["label"], "shared GPU");
  EXPECT_EQ(lines[0]["gpu"]["clock_mhz"], 1980);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["wrong"], 0);
    EXPECT_EQ(lines[i]["iterations"], 4);
    EXPECT_EQ(lines[i]["graph_iterations"], 0);
    EXPECT_LT(lines[i]["queued_us"].get<double>(), lines[i]["time_us"].get<double>()) << "all work is done after it";
  }
}

TEST_F(SweepOnDevices, WhatNobodyComputesIsNotFilledAndNotCompared) {
  QueueDevice::all_compute = false;
  EXPECT_EQ(run("--ranks 2 -b 64 -e 64 -n 4 --algo two_shot"), 0) << printed_;
  QueueDevice::all_compute = true;
  const auto lines = records();
  ASSERT_EQ(lines.size(), 3u);
  for (std::size_t i : {1U, 2U}) {
    EXPECT_TRUE(lines[i]["wrong"].is_null()) << lines[i];
    EXPECT_EQ(lines[i]["iterations"], 4);
  }
  EXPECT_TRUE(has_printed("N/A"));
}

TEST_F(SweepOnDevices, TransportsOfOneSessionTakeTurns) {
  turns().clear();
  EXPECT_EQ(run("--transport cuda,nccl --ranks 4 -b 64 -e 64 -n 80 -w 0 --algo two_shot,library"), 0) << printed_;
  EXPECT_EQ(turns(), (std::vector<std::string>{"cuda", "nccl", "cuda", "nccl", "cuda", "nccl"})) << "32, 32, 16 calls";
  EXPECT_TRUE(has_printed("# transport cuda and nccl, 4 ranks (threads) on "));
  EXPECT_TRUE(has_printed("# the transports alternate"));
  EXPECT_TRUE(has_printed("  ranks  transport                 algorithm\n"));
  EXPECT_TRUE(has_printed("      4       cuda                  two_shot\n"));
  EXPECT_TRUE(has_printed("      4       nccl                  two_shot\n"));
  EXPECT_TRUE(has_printed("      4       nccl                   library\n"));
  const auto lines = records();
  ASSERT_EQ(lines.size(), 2u + 3 * 2);  // a run each; algorithms, placements
  EXPECT_EQ(lines[0]["transport"], "cuda");
  EXPECT_EQ(lines[1]["transport"], "nccl");
  EXPECT_NE(lines[0]["run"], lines[1]["run"]);
  for (std::size_t i = 2; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["run"], lines[lines[i]["transport"] == "cuda" ? 0 : 1]["run"]);
    EXPECT_EQ(lines[i]["executor"], lines[i]["algorithm"] == "library" ? "library" : lines[i]["transport"]);
    EXPECT_EQ(lines[i]["wrong"], 0);
    EXPECT_EQ(lines[i]["iterations"], 80);
  }
}

TEST_F(SweepOnDevices, EachTransportOfASessionRunsWhatItHas) {
  EXPECT_EQ(run("--transport cuda,nccl --ranks 2 -b 4K -e 4K -n 2 --algo auto"), 0) << printed_;
  const auto lines = records();
  ASSERT_EQ(lines.size(), 2u + 2 * 2);
  EXPECT_NE(lines[2]["algorithm"], "library");
  EXPECT_EQ(lines[5]["algorithm"], "library");
  EXPECT_EQ(refusal_of("--transport cuda,nccl --ranks 2 --algo library"),
            "--algo library: the transport cuda runs plans only; allowed: all, auto, or an algorithm's name");
}

TEST_F(SweepOnDevices, BuffersAreThoseOfWhoRegistersThem) {
  turns().clear();
  EXPECT_EQ(run("--transport nccl --ranks 4 -b 50K -e 50K -n 20 -R 2 --algo library", "scatter_perf"), 0) << printed_;
  EXPECT_EQ(turns(), (std::vector<std::string>{"allocate", "nccl", "release"}));
}

TEST_F(SweepOnDevices, AGraphHoldsTheIterationsAndIsReplayed) {
  EXPECT_EQ(run("--ranks 3 -b 4K -e 4K -n 6 -m 2 -G 4 -w 0 --algo ring"), 0) << printed_;
  EXPECT_TRUE(has_printed(" graph: 4 "));
  for (const auto& row : records()) {
    if (row["record"] != "row") continue;
    EXPECT_EQ(row["wrong"], 0);
    EXPECT_EQ(row["graph_iterations"], 6);
    EXPECT_EQ(row["samples_us"].size(), 4u);
    EXPECT_EQ(row["iterations"], 6 * 2 * 4);  // calls
  }
}

TEST_F(SweepOnDevices, HostsTimeAndWaits) {
  EXPECT_EQ(run("--ranks 2 -b 4K -e 4K -n 3 -C 1 --algo ring"), 0) << printed_;
  EXPECT_TRUE(has_printed("  cputime "));
  for (const char* blocking : {"1", "2", "3"}) {
    EXPECT_EQ(run("--ranks 3 -b 4K -e 4K -n 5 -m 2 --algo ring -z " + std::string(blocking)), 0) << printed_;
    const auto lines = records();
    ASSERT_EQ(lines.size(), 3u);
    EXPECT_EQ(lines[1]["wrong"], 0);
    EXPECT_EQ(lines[1]["samples_us"].size(), 5u);
  }
}

// A throttle is planted: the fake GPU reports two clocks per row, before and after its samples.
TEST_F(SweepOnDevices, RowsWhoseClocksChangedAreMeasuredAgain) {
  core::fake() = {.throttle_reasons = 0};
  const core::GpuMeter meter(core::fake_calls(), nullptr, "0000:1b:00.0");
  const std::vector<unsigned> clocks{1980, 1980,                           // a steady row
                                     1980, 1200, 1980, 1980,               // repeated once
                                     1980, 1200, 1980, 1410, 1410, 1000};  // repeated twice, and still disturbed
  std::size_t looks = 0;
  look = [&] {
    core::fake().sm_mhz = clocks.at(looks++);
    return std::vector{core::state_of("0000:1b:00.0", meter)};
  };
  EXPECT_EQ(run("--ranks 2 -b 1K -e 4K -f 2 -n 3 --algo ring"), 0) << printed_;
  EXPECT_EQ(looks, clocks.size());
  const auto lines = records();
  ASSERT_EQ(lines.size(), 1u + 3 * 2);  // sizes, placements
  for (std::size_t row = 1; row < lines.size(); ++row) {
    const auto& found = lines[row]["gpu_clocks"];
    EXPECT_EQ(found["repeats"], (row - 1) / 2) << "each placement of a size";
    EXPECT_EQ(found["most_repeats"], 2);
    EXPECT_EQ(lines[row]["samples_us"].size(), 3u) << "samples of the last attempt";
    EXPECT_EQ(lines[row]["iterations"], 3);
    EXPECT_EQ(lines[row]["wrong"], 0);
  }
  EXPECT_EQ(lines[4]["gpu_clocks"]["disturbance"], nullptr);
  EXPECT_EQ(lines[6]["gpu_clocks"]["disturbance"], "0000:1b:00.0: SM clock 1410 to 1000 MHz");
  EXPECT_EQ(lines[6]["gpu_clocks"]["before"][0]["sm_mhz"], 1410.0);
  EXPECT_EQ(lines[6]["gpu_states"][0]["sm_mhz"], 1000.0);
  EXPECT_TRUE(
      has_printed("# clocks changed while this row was measured, and in 2 repetitions: 0000:1b:00.0: SM clock 1410 to "
                  "1000 MHz\n"))
      << printed_;
}

TEST_F(SweepOnDevices, GpusOfThreadsAreNotShared) {
  EXPECT_EQ(run("-g 2 -b 1K -e 1K -n 2"), 0) << printed_;
  EXPECT_TRUE(has_printed("# nThread 1 nGpus 2 "));
  EXPECT_EQ(records()[0]["gpu"]["label"], "a GPU a rank");
  EXPECT_EQ(refusal_of("-t 2 -g 2"),
            "-t times -g is 4 GPUs, and there are 2; allowed: at most that many, or --ranks 4, which may share GPUs");
}

TEST_F(SweepOnDevices, MemoryIsTheDevices) {
  const std::string why = refusal_of("--ranks 4 -b 512M -e 512M");
  EXPECT_EQ(why, "-e,--maxbytes 512 MiB: 2 ranks need 2 GiB of memory on device 0 Test GPU; it has 1 GiB");
}

TEST(Places, Ranges) {
  EXPECT_EQ(ranges_text({}), "");
  EXPECT_EQ(ranges_text({3}), "3");
  EXPECT_EQ(ranges_text({0, 1, 2, 3, 6, 8, 9}), "0-3,6,8-9");
}

TEST(Places, ADeviceOfAnotherHostIsAnother) {
  const auto at = [](int rank, const char* host, int device) {
    return DeviceLine{rank, 1, host, device, "0000:1b:00", "H"};
  };
  const std::vector<DeviceLine> apart{at(0, "a", 0), at(1, "a", 1), at(2, "b", 0), at(3, "b", 1)};
  EXPECT_EQ(ranks_per_gpu(apart), 1);
  EXPECT_TRUE(sharing_notes(apart).empty());
  const std::vector<DeviceLine> shared{at(0, "a", 0), at(1, "b", 0), at(2, "b", 0)};
  EXPECT_EQ(ranks_per_gpu(shared), 2);
  EXPECT_EQ(sharing_notes(shared), std::vector<std::string>{"ranks 1-2 on device 0 H (2 ranks share it)"});
}

// Covers threads of one process, processes without MPS, and processes with it.
TEST(Places, ProcessesThatTakeTurnsOnAGpuAreTold) {
  const auto notes = [](int second_process, bool mps) {
    return sharing_notes({{0, 1, "a", 0, "0000:1b:00", "H", mps}, {1, second_process, "a", 0, "0000:1b:00", "H", mps}});
  };
  EXPECT_EQ(notes(1, false).size(), 1U);
  EXPECT_EQ(notes(2, true).size(), 1U);
  ASSERT_EQ(notes(2, false).size(), 2U);
  EXPECT_TRUE(core::has(notes(2, false).at(1), "processes time-share device 0"));
}

TEST_F(SweepOnDevices, MemoryIsReportedOfTheGpuWithTheMostByAllItsRanks) {
  for (auto& bytes : taken()) bytes = std::size_t{7} << 20;  // other programs'
  EXPECT_EQ(run("--transport cuda,nccl --ranks 3 -b 64 -e 128 -f 2 -n 2 -M 1"), 0) << printed_;
  EXPECT_TRUE(
      has_printed("# GPU memory: 10.0 MiB used: 8.0 MiB by initialization, 0.0 MiB by buffers, 2.0 MiB by the calls; "
                  "on the GPU with the largest total, for all of its ranks\n"))
      << printed_;
  for (const auto& line : records()) {
    if (line["record"] != "row") continue;
    EXPECT_EQ(line["gpu_memory"]["joining_bytes"], 2 * 4 << 20) << "2 ranks on GPU 0, of each transport one membership";
    EXPECT_GE(line["gpu_memory"]["taken_bytes"], line["gpu_memory"]["joining_bytes"]);
  }
}

TEST_F(SweepOnDevices, NobodyAsksForMemoryUnlessTheUserDoes) {
  EXPECT_EQ(run("--ranks 2 -b 64 -e 64 -n 2"), 0);
  EXPECT_FALSE(has_printed("GPU memory"));
  EXPECT_FALSE(records().at(1).contains("gpu_memory"));
}

TEST_F(SweepOnDevices, NcclsConfigurationIsRecordedAsItWasAskedFor) {
  EXPECT_EQ(run("--transport nccl -t 1 -g 2 -b 64 -e 64 -n 2 --min-ctas 2 --net Socket -x 1 -y 1"), 0) << printed_;
  const auto run_line = records().at(0);
  EXPECT_EQ(run_line["nccl_config"], (nlohmann::json{{"min_ctas", 2},
                                                     {"max_ctas", nullptr},
                                                     {"cga_cluster_size", nullptr},
                                                     {"cta_policy", 1},
                                                     {"split_share", nullptr},
                                                     {"net", "Socket"},
                                                     {"registration", 0}}));
  EXPECT_EQ(run_line["gpus_per_thread"], 2);
  EXPECT_EQ(run_line["null_stream"], true);
  EXPECT_FALSE(run_line.contains("mpi_processes"));
  EXPECT_TRUE(has_printed("# nThread 1 nGpus 2 "));
  EXPECT_EQ(run("-t 1 -g 2 -b 64 -e 64 -n 2"), 0);
  EXPECT_FALSE(records().at(0).contains("nccl_config"));
  EXPECT_FALSE(records().at(0).contains("null_stream"));
}

TEST_F(SweepOnDevices, WithTheZeroCtaPolicyTheHeadingTellsWhetherCallsTakeThreadBlocks) {
  const std::string arguments = "--transport nccl --algo library -t 1 -g 2 -b 64 -e 64 -n 2 -x 2";
  kind_ = collectives::Kind::all_gather;
  EXPECT_EQ(run(arguments + " -R 2"), 0) << printed_;
  EXPECT_TRUE(has_printed("# -x 2: all_gather by NCCL's own algorithms takes no thread blocks")) << printed_;
  EXPECT_EQ(records().at(0)["nccl_config"]["registration"], 2);
  EXPECT_EQ(run(arguments), 0) << printed_;
  EXPECT_TRUE(
      has_printed("# -x 2: all_gather takes thread blocks: copy engines need buffers in symmetric windows, -R 2"))
      << printed_;
  kind_ = collectives::Kind::all_reduce;
  EXPECT_EQ(run(arguments + " -R 2"), 0) << printed_;
  EXPECT_TRUE(has_printed("# -x 2: all_reduce takes thread blocks: copy engines sum nothing")) << printed_;
}

TEST(TimeRule, AThreadIsDoneWhenItsSlowestGpuIs) {
  const std::vector<double> ranks{1, 5, 2, 3, 9, 8};
  EXPECT_EQ(time_by({TimeOf::mean, 1}, ranks), 28.0 / 6);
  EXPECT_EQ(time_by({TimeOf::mean, 2}, ranks), (5.0 + 3 + 9) / 3) << "of three threads with two GPUs";
  EXPECT_EQ(time_by({TimeOf::rank0, 2}, ranks), 5);
  EXPECT_EQ(time_by({TimeOf::min, 2}, ranks), 3);
  EXPECT_EQ(time_by({TimeOf::max, 3}, ranks), 9);
  EXPECT_EQ(time_by({TimeOf::mean, 6}, ranks), 9) << "one thread with all GPUs, as -g 6";
}

}  // namespace
}  // namespace lockstep::sweep
