// The stand-in for CUDA's runtime: what it refuses, in which order it does work, and what it hands to an executor.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "testing/cuda_stand_in/launch.h"
#include "testing/cuda_stand_in/limits.h"
#include "testing/cuda_stand_in/tensor_map.h"

// nvcc's host code calls it for each kernel.
extern "C" void __cudaRegisterFunction(void** handle, const char* function, char* device_function, const char* name,
                                       int thread_limit, uint3* tid, uint3* bid, dim3* block, dim3* grid, int* warp);

namespace lockstep::cuda_stand_in {
namespace {

constexpr std::size_t kKiB = 1024;

void stub() {}  // the host function of the kernel "probe"
void other_stub() {}
void* probe() {
  return reinterpret_cast<void*>(&stub);
}

// Kernels of the tests: an entry "probe" with the facts of a test, which runs until the test ends it.
class FakeExecutor final : public Executor {
 public:
  KernelFacts facts{.parameters = {{.offset_bytes = 0, .size_bytes = 8}, {.offset_bytes = 8, .size_bytes = 4}}};
  bool ends_at_once = true;
  std::function<void()> during = [] {};

  std::optional<KernelFacts> facts_of(const std::string& kernel) override {
    return kernel == "probe" ? std::optional(facts) : std::nullopt;
  }
  void begin(const Launch& launch) override {
    const std::lock_guard lock(mutex_);
    begun_.push_back(launch);
    running_.push_back(launch.number);
  }
  std::vector<std::uint64_t> run() override {
    during();
    const std::lock_guard lock(mutex_);
    return std::exchange(ends_at_once ? running_ : ended_, {});
  }
  void on_allocated(std::uintptr_t begin, std::size_t /*size_bytes*/) override { note('a', begin); }
  void on_freed(std::uintptr_t begin, std::size_t /*size_bytes*/) override { note('f', begin); }
  void on_written(std::uintptr_t begin, std::size_t /*size_bytes*/) override { note('w', begin); }

  void end(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    ended_.push_back(number);
  }
  std::vector<Launch> begun() {
    const std::lock_guard lock(mutex_);
    return begun_;
  }
  // 'a', 'f', 'w' of what became of the memory that begins there.
  std::string heard_of(const void* memory) {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const auto& [what, begin] : heard_) {
      if (begin == reinterpret_cast<std::uintptr_t>(memory)) all += what;
    }
    return all;
  }

 private:
  void note(char what, std::uintptr_t begin) {
    const std::lock_guard lock(mutex_);
    heard_.emplace_back(what, begin);
  }
  std::mutex mutex_;
  std::vector<Launch> begun_;
  std::vector<std::uint64_t> running_;
  std::vector<std::uint64_t> ended_;
  std::vector<std::pair<char, std::uintptr_t>> heard_;
};

bool becomes_true(const std::function<bool()>& holds) {
  for (int i = 0; i < 5000 && !holds(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return holds();
}

class CudaStandInTest : public testing::Test {
 protected:
  void SetUp() override {
    __cudaRegisterFunction(nullptr, reinterpret_cast<const char*>(&stub), nullptr, "probe", -1, nullptr, nullptr,
                           nullptr, nullptr, nullptr);
    __cudaRegisterFunction(nullptr, reinterpret_cast<const char*>(&other_stub), nullptr, "absent", -1, nullptr, nullptr,
                           nullptr, nullptr, nullptr);
    install(&executor);
    cudaGetLastError();
  }
  void TearDown() override {
    opt_in(0);
    install(nullptr);
  }

  cudaError_t launch(dim3 grid, dim3 block, std::size_t shared_bytes = 0, cudaStream_t stream = nullptr,
                     std::vector<cudaLaunchAttribute> attributes = {}) {
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attributes.data();
    config.numAttrs = static_cast<unsigned>(attributes.size());
    std::array<void*, 2> arguments{&first, &second};
    return cudaLaunchKernelExC(&config, probe(), arguments.data());
  }
  cudaError_t opt_in(std::size_t bytes) {
    return cudaFuncSetAttribute(probe(), cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  }
  static cudaLaunchAttribute cluster(unsigned x) {
    cudaLaunchAttribute attribute{};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = x;
    attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
    return attribute;
  }
  static cudaLaunchAttribute flag(cudaLaunchAttributeID id) {
    cudaLaunchAttribute attribute{};
    attribute.id = id;
    if (id == cudaLaunchAttributeCooperative) attribute.val.cooperative = 1;
    if (id == cudaLaunchAttributeProgrammaticStreamSerialization) {
      attribute.val.programmaticStreamSerializationAllowed = 1;
    }
    return attribute;
  }
  static cudaStream_t make_stream() {
    cudaStream_t stream = nullptr;
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    return stream;
  }
  template <class T>
  static T* make(std::size_t count) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, count * sizeof(T)), cudaSuccess);
    return static_cast<T*>(memory);
  }

  FakeExecutor executor;
  std::uint64_t first = 0x1122334455667788;
  int second = 7;
};

// Launches that are refused.

TEST_F(CudaStandInTest, StaticAndDynamicSharedMemoryCountTogetherAgainst48KiB) {
  executor.facts.static_shared_bytes = 272;
  EXPECT_EQ(launch(1, 32, 48 * kKiB - 272), cudaSuccess);
  EXPECT_EQ(launch(1, 32, 48 * kKiB), cudaErrorInvalidValue);
  EXPECT_NE(last_refusal().find("49152 bytes of dynamic shared memory with 272 static ones; allowed: 48880"),
            std::string::npos)
      << last_refusal();
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(opt_in(48 * kKiB), cudaSuccess);
  EXPECT_EQ(launch(1, 32, 48 * kKiB), cudaSuccess);
}

TEST_F(CudaStandInTest, SharedMemoryEndsAt227KiB) {
  executor.facts.static_shared_bytes = kKiB;
  EXPECT_EQ(opt_in(227 * kKiB), cudaErrorInvalidValue);
  EXPECT_EQ(opt_in(226 * kKiB), cudaSuccess);
  EXPECT_EQ(launch(1, 32, 226 * kKiB), cudaSuccess);
  EXPECT_EQ(opt_in(100 * kKiB), cudaSuccess);
  EXPECT_EQ(launch(1, 32, 101 * kKiB), cudaErrorInvalidValue);
}

TEST_F(CudaStandInTest, BlocksThatNeedTooManyRegistersOrThreadsAreRefused) {
  executor.facts.registers = 128;
  EXPECT_EQ(launch(1, 512), cudaSuccess);
  EXPECT_EQ(launch(1, 544), cudaErrorLaunchOutOfResources);
  executor.facts.most_threads = 256;
  install(nullptr);
  install(&executor);  // facts are asked for again
  EXPECT_EQ(launch(1, 257), cudaErrorInvalidValue);
  EXPECT_EQ(launch(1, 1025), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(0, 32), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), 32), cudaErrorInvalidConfiguration);
}

TEST_F(CudaStandInTest, ClustersAreAtMostEightBlocksAndDivideTheGrid) {
  EXPECT_EQ(launch(16, 32, 0, nullptr, {cluster(8)}), cudaSuccess);
  EXPECT_EQ(launch(16, 32, 0, nullptr, {cluster(16)}), cudaErrorInvalidClusterSize);
  EXPECT_EQ(launch(15, 32, 0, nullptr, {cluster(2)}), cudaErrorInvalidClusterSize);
  cudaDeviceSynchronize();
  EXPECT_EQ(executor.begun().at(0).cluster.x, 8U);
}

TEST_F(CudaStandInTest, CooperativeGridsMustFitTheMultiprocessors) {
  executor.facts.registers = 64;
  const auto cooperative = flag(cudaLaunchAttributeCooperative);
  EXPECT_EQ(launch(132 * 4, 256, 0, nullptr, {cooperative}), cudaSuccess);
  EXPECT_EQ(launch(132 * 4 + 1, 256, 0, nullptr, {cooperative}), cudaErrorCooperativeLaunchTooLarge);
  EXPECT_EQ(opt_in(120 * kKiB), cudaSuccess);
  EXPECT_EQ(launch(133, 256, 120 * kKiB, nullptr, {cooperative}), cudaErrorCooperativeLaunchTooLarge);
}

TEST_F(CudaStandInTest, IsAnotherGpuIfItIsDescribedSo) {
  describe({.multiprocessors = 2, .has_clusters = false});
  int multiprocessors = 0;
  int has_clusters = 1;
  EXPECT_EQ(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceGetAttribute(&has_clusters, cudaDevAttrClusterLaunch, 0), cudaSuccess);
  EXPECT_EQ(multiprocessors, 2);
  EXPECT_EQ(has_clusters, 0);
  EXPECT_EQ(launch(8, 32, 0, nullptr, {cluster(2)}), cudaErrorInvalidClusterSize);
  EXPECT_EQ(launch(17, 1024, 0, nullptr, {flag(cudaLaunchAttributeCooperative)}), cudaErrorCooperativeLaunchTooLarge);
  describe({});
  EXPECT_EQ(launch(8, 32, 0, nullptr, {cluster(2)}), cudaSuccess);
}

TEST_F(CudaStandInTest, ParametersEndAt32764Bytes) {
  executor.facts.parameters = {{.offset_bytes = 32'760, .size_bytes = 8}};
  EXPECT_EQ(launch(1, 32), cudaErrorInvalidValue);
  EXPECT_NE(last_refusal().find("32768 bytes of parameters; allowed: 32764"), std::string::npos) << last_refusal();
}

TEST_F(CudaStandInTest, FunctionsThatAreNoKernelsAreRefused) {
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = dim3(1);
  EXPECT_EQ(cudaLaunchKernelExC(&config, &config, nullptr), cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(cudaLaunchKernelExC(&config, reinterpret_cast<void*>(&other_stub), nullptr),
            cudaErrorInvalidDeviceFunction);
  EXPECT_EQ(last_refusal(), "absent: the executor has no kernel absent");
}

TEST(CudaStandInLimits, ResidencyIsLimitedByEachResource) {
  const KernelFacts small{.parameters = {}, .registers = 32};
  EXPECT_EQ(blocks_per_multiprocessor(small, 32, 0), 32);
  EXPECT_EQ(blocks_per_multiprocessor(small, 1024, 0), 2);
  EXPECT_EQ(blocks_per_multiprocessor(small, 32, 113 * kKiB), 2);
  EXPECT_EQ(blocks_per_multiprocessor({.parameters = {}, .registers = 255}, 256, 0), 1);
  EXPECT_EQ(blocks_per_multiprocessor({.parameters = {}, .registers = 128}, 256, 0), 2);
}

// Memory.

TEST_F(CudaStandInTest, CopiesOfFreedMemoryAndBeyondAnEndAreRefused) {
  int* const memory = make<int>(4);
  std::array<int, 8> host{1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(cudaMemcpy(memory, host.data(), 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(memory, host.data(), 20, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(last_refusal(), "the destination of a copy: 20 bytes from byte 0 of an allocation of 16 bytes");
  EXPECT_EQ(cudaMemcpy(host.data(), memory + 1, 16, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(memory + 4, 0, 4, nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(host.data(), memory, 4, cudaMemcpyDefault), cudaErrorInvalidValue);
  EXPECT_EQ(last_refusal(), "the source of a copy: the memory was freed");
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue);
  EXPECT_TRUE(memory_at(reinterpret_cast<std::uintptr_t>(memory))->freed);
  EXPECT_TRUE(becomes_true([&] { return executor.heard_of(memory) == "awf"; })) << executor.heard_of(memory);
}

TEST_F(CudaStandInTest, MemoryIsAsLargeAsTheGpus) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, total_bytes + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMalloc(&memory, free_bytes), cudaSuccess);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaMallocHost(&more, 1), cudaSuccess);
  EXPECT_EQ(cudaFree(more), cudaErrorInvalidValue) << "page-locked memory has a call of its own";
  EXPECT_EQ(cudaFreeHost(more), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(CudaStandInTest, FillsWriteEveryByteAndNoOther) {
  constexpr std::size_t kCount = 20'000;
  auto* const memory = make<unsigned char>(kCount);
  cudaMemsetAsync(memory, 5, kCount, nullptr);
  cudaMemsetAsync(memory + 3, 0, kCount - 7, nullptr);
  std::vector<unsigned char> host(kCount);
  cudaMemcpy(host.data(), memory, kCount, cudaMemcpyDefault);
  EXPECT_EQ(std::count(host.begin(), host.begin() + 3, 5), 3);
  EXPECT_EQ(std::count(host.begin(), host.end(), 0), static_cast<std::ptrdiff_t>(kCount - 7));
  EXPECT_EQ(std::count(host.end() - 4, host.end(), 5), 4);
  cudaFree(memory);
}

TEST_F(CudaStandInTest, AnotherProcessOpensMemoryByItsHandle) {
  int* const memory = make<int>(100);
  cudaIpcMemHandle_t handle{};
  EXPECT_EQ(cudaIpcGetMemHandle(&handle, memory), cudaSuccess);
  void* opened = nullptr;
  EXPECT_EQ(cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess), cudaErrorDeviceUninitialized);
  install(nullptr);  // no thread during the fork
  const pid_t child = fork();
  if (child == 0) {
    const bool is_open = cudaIpcOpenMemHandle(&opened, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess;
    const int value = 41;
    const bool wrote =
        is_open && cudaMemcpy(static_cast<int*>(opened) + 1, &value, 4, cudaMemcpyDefault) == cudaSuccess;
    const bool closed = is_open && cudaIpcCloseMemHandle(opened) == cudaSuccess;
    _exit(wrote && closed ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  std::array<int, 2> host{};
  cudaMemcpy(host.data(), memory, sizeof host, cudaMemcpyDefault);
  EXPECT_EQ(host[1], 41);
  cudaFree(memory);
}

// The order of work.

TEST_F(CudaStandInTest, ALaunchHasItsShapeAndItsParametersAsTheKernelReadsThem) {
  keep_launches(true);
  EXPECT_EQ(launch(dim3(2, 3), dim3(32, 2), 64), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  keep_launches(false);
  ASSERT_EQ(kept_launches().size(), 1U);
  forget_launches();
  ASSERT_EQ(executor.begun().size(), 1U);
  const Launch begun = executor.begun().front();
  EXPECT_EQ(begun.kernel, "probe");
  EXPECT_EQ(begun.grid.count(), 6U);
  EXPECT_EQ(begun.block.y, 2U);
  EXPECT_EQ(begun.dynamic_shared_bytes, 64U);
  ASSERT_EQ(begun.parameters.size(), 12U);
  EXPECT_EQ(std::memcmp(begun.parameters.data(), &first, 8), 0);
  EXPECT_EQ(std::memcmp(begun.parameters.data() + 8, &second, 4), 0);
}

TEST_F(CudaStandInTest, AStreamIsInOrderAndStreamsRunSideBySide) {
  executor.ends_at_once = false;
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  launch(1, 32, 0, a);
  launch(2, 32, 0, a);
  launch(3, 32, 0, b);
  EXPECT_TRUE(becomes_true([&] { return executor.begun().size() == 2; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_EQ(executor.begun().size(), 2U) << "the second kernel of a stream waits for the first";
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorNotReady);
  for (const Launch& begun : executor.begun()) executor.end(begun.number);
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_TRUE(becomes_true([&] { return executor.begun().size() == 3; }));
  EXPECT_EQ(executor.begun().back().grid.x, 2U);
  EXPECT_EQ(executor.begun().back().after, 0U);
  executor.end(executor.begun().back().number);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(a), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(b), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(a), cudaErrorInvalidResourceHandle);
}

TEST_F(CudaStandInTest, AnEarlyLaunchBeginsWhileTheKernelBeforeItRuns) {
  executor.ends_at_once = false;
  launch(1, 32);
  launch(2, 32, 0, nullptr, {flag(cudaLaunchAttributeProgrammaticStreamSerialization)});
  EXPECT_TRUE(becomes_true([&] { return executor.begun().size() == 2; }));
  EXPECT_EQ(executor.begun()[1].after, executor.begun()[0].number);
  for (const Launch& begun : executor.begun()) executor.end(begun.number);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(CudaStandInTest, AStreamWaitsForAnothersEventAndCopiesForKernels) {
  executor.ends_at_once = false;
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDefault);
  auto* const memory = make<unsigned char>(4);
  launch(1, 32, 0, a);
  cudaMemsetAsync(memory, 9, 4, a);
  cudaEventRecord(event, a);
  cudaStreamWaitEvent(b, event, 0);
  launch(2, 32, 0, b);
  EXPECT_TRUE(becomes_true([&] { return executor.begun().size() == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(executor.begun().size(), 1U);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(executor.heard_of(memory), "a");
  executor.end(executor.begun()[0].number);
  EXPECT_TRUE(becomes_true([&] { return executor.begun().size() == 2; }));
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(executor.heard_of(memory), "aw");
  executor.end(executor.begun()[1].number);
  EXPECT_EQ(cudaFree(memory), cudaSuccess) << "waits for the device";
  cudaEventDestroy(event);
}

TEST_F(CudaStandInTest, AFaultOfAKernelFailsEveryLaterCall) {
  executor.during = [] { throw std::runtime_error("probe, line 7: a load out of bounds"); };
  EXPECT_EQ(launch(1, 32), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(last_refusal(), "probe, line 7: a load out of bounds");
  void* memory = nullptr;
  EXPECT_EQ(cudaMalloc(&memory, 4), cudaErrorLaunchFailure);
}

TEST_F(CudaStandInTest, EachReplayOfAGraphIsALaunchOfItsOwn) {
  cudaStream_t const a = make_stream();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  EXPECT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  launch(5, 32, 0, a);
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), cudaSuccess);
  EXPECT_EQ(cudaGraphInstantiateWithFlags(&executable, graph, 0), cudaSuccess);
  EXPECT_TRUE(executor.begun().empty());
  cudaGraphLaunch(executable, a);
  cudaGraphLaunch(executable, a);
  EXPECT_EQ(cudaStreamSynchronize(a), cudaSuccess);
  ASSERT_EQ(executor.begun().size(), 2U);
  EXPECT_LT(executor.begun()[0].number, executor.begun()[1].number);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, a), cudaErrorInvalidResourceHandle);
}

// Calls that a capture forbids. Each case makes one call between the begin and the end of a capture of stream a; b is
// another.
struct Forbidden {
  const char* name;
  std::function<cudaError_t(cudaStream_t a, cudaStream_t b, cudaEvent_t event)> call;
  cudaError_t refused;
  cudaError_t at_end;
};
class CaptureRulesTest : public CudaStandInTest, public testing::WithParamInterface<int> {};

std::vector<Forbidden> forbidden() {
  return {
      {"malloc",
       [](auto, auto, auto) {
         void* memory = nullptr;
         return cudaMalloc(&memory, 16);
       },
       cudaErrorStreamCaptureUnsupported, cudaErrorStreamCaptureInvalidated},
      {"query", [](auto a, auto, auto) { return cudaStreamQuery(a); }, cudaErrorStreamCaptureUnsupported,
       cudaErrorStreamCaptureInvalidated},
      {"wait for what was not captured",
       [](auto a, auto b, auto event) {
         cudaEventRecord(event, b);
         return cudaStreamWaitEvent(a, event, 0);
       },
       cudaErrorStreamCaptureIsolation, cudaErrorStreamCaptureInvalidated},
      {"query of a captured event",
       [](auto a, auto, auto event) {
         cudaEventRecord(event, a);
         return cudaEventQuery(event);
       },
       cudaErrorCapturedEvent, cudaSuccess},
      {"a stream that is not joined",
       [](auto a, auto b, auto event) {
         cudaEventRecord(event, a);
         cudaStreamWaitEvent(b, event, 0);
         void* memory = nullptr;
         cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
         cudaThreadExchangeStreamCaptureMode(&mode);
         cudaMalloc(&memory, 16);
         cudaThreadExchangeStreamCaptureMode(&mode);
         return cudaMemsetAsync(memory, 0, 16, b);
       },
       cudaSuccess, cudaErrorStreamCaptureUnjoined},
  };
}

TEST_P(CaptureRulesTest, IsHeld) {
  const Forbidden rule = forbidden().at(static_cast<std::size_t>(GetParam()));
  SCOPED_TRACE(rule.name);
  cudaStream_t const a = make_stream();
  cudaStream_t const b = make_stream();
  cudaEvent_t event = nullptr;
  cudaEventCreateWithFlags(&event, cudaEventDefault);
  EXPECT_EQ(cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(rule.call(a, b, event), rule.refused);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(a, &graph), rule.at_end);
  EXPECT_EQ(cudaStreamQuery(a), cudaSuccess) << "the stream is usable again";
}
INSTANTIATE_TEST_SUITE_P(Each, CaptureRulesTest, testing::Range(0, static_cast<int>(forbidden().size())));

TEST_F(CudaStandInTest, TheNullStreamIsNotCaptured) {
  EXPECT_EQ(cudaStreamBeginCapture(cudaStreamLegacy, cudaStreamCaptureModeThreadLocal),
            cudaErrorStreamCaptureUnsupported);
}

// Tensor maps.

struct Tiled {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  unsigned rank = 3;
  std::uint64_t address = 0x10000;
  std::array<std::uint64_t, 5> sizes{128, 16, 100, 1, 1};
  std::array<std::uint64_t, 4> strides{256, 4096, 1, 1};
  std::array<std::uint32_t, 5> box{64, 1, 64, 1, 1};
  std::array<std::uint32_t, 5> steps{1, 1, 1, 1, 1};
  CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_128B;
  CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;
  std::size_t misplaced_bytes = 0;  // by which the map itself is out of place
};

CUresult encode(const Tiled& t, EncodedTensorMap* result = nullptr) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer{};
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &answer);
  EXPECT_EQ(answer, cudaDriverEntryPointSuccess);
  struct alignas(64) {
    std::array<std::byte, 192> bytes;
  } room{};
  auto* const map = reinterpret_cast<CUtensorMap*>(room.bytes.data() + t.misplaced_bytes);
  const CUresult code = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(found)(
      // NOLINTNEXTLINE(performance-no-int-to-ptr): an address that nothing has
      map, t.type, t.rank, reinterpret_cast<void*>(t.address), t.sizes.data(), t.strides.data(), t.box.data(),
      t.steps.data(), t.interleave, t.swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE, t.fill);
  if (result != nullptr) std::memcpy(result, room.bytes.data(), sizeof *result);
  return code;
}

TEST(CudaStandInTensorMap, HasEveryFieldOfTheTensor) {
  EncodedTensorMap map{};
  ASSERT_EQ(encode({}, &map), CUDA_SUCCESS) << last_refusal();
  EXPECT_EQ(map.mark, EncodedTensorMap::kMark);
  EXPECT_EQ(map.address, 0x10000U);
  EXPECT_EQ(map.rank, 3);
  EXPECT_EQ(map.sizes[2], 100U);
  EXPECT_EQ(map.strides_bytes[1], 4096U);
  EXPECT_EQ(map.box[0], 64);
  EXPECT_EQ(map.steps[0], 1);
  EXPECT_EQ(map.swizzle, CU_TENSOR_MAP_SWIZZLE_128B);
  EXPECT_EQ(map.data_type, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
}

// A tensor that is right but for one thing, and words of the refusal.
TEST(CudaStandInTensorMap, IsRefusedForEachRuleThatItBreaks) {
  const auto with = [](auto change) {
    Tiled tiled;
    change(tiled);
    return tiled;
  };
  const std::vector<std::pair<Tiled, std::string>> cases{
      {with([](Tiled& t) { t.misplaced_bytes = 32; }), "multiple of 64 bytes"},
      {with([](Tiled& t) { t.address += 8; }), "the address is no multiple of 16 bytes"},
      {with([](Tiled& t) { t.rank = 0; }), "0 dimensions"},
      {with([](Tiled& t) { t.rank = 6; }), "6 dimensions"},
      {with([](Tiled& t) { t.sizes[1] = 0; }), "dimension 1 has 0 elements"},
      {with([](Tiled& t) { t.sizes[1] = (std::uint64_t{1} << 32) + 1; }), "dimension 1 has"},
      {with([](Tiled& t) { t.strides[0] = 264; }), "stride 0 is 264 bytes"},
      {with([](Tiled& t) { t.strides[1] = std::uint64_t{1} << 40; }), "stride 1 is"},
      {with([](Tiled& t) { t.box[2] = 257; }), "257 elements in dimension 2"},
      {with([](Tiled& t) { t.box[2] = 0; }), "0 elements in dimension 2"},
      {with([](Tiled& t) { t.box[0] = 60; }), "120 bytes; allowed: multiples of 16"},
      {with([](Tiled& t) { t.box[0] = 72; }), "144 bytes; the swizzle allows 128"},
      {with([](Tiled& t) { t.steps[1] = 9; }), "step 9 in dimension 1"},
      {with([](Tiled& t) { t.interleave = CU_TENSOR_MAP_INTERLEAVE_32B; }), "needs a swizzle of 32 bytes"},
      {with([](Tiled& t) {
         t.rank = 2;
         t.interleave = CU_TENSOR_MAP_INTERLEAVE_16B;
       }),
       "needs 3 dimensions"},
      {with([](Tiled& t) {
         t.type = CU_TENSOR_MAP_DATA_TYPE_INT32;
         t.fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
       }),
       "needs a floating-point type"},
  };
  for (const auto& [tiled, words] : cases) {
    EXPECT_EQ(encode(tiled), CUDA_ERROR_INVALID_VALUE) << words;
    EXPECT_NE(last_refusal().find(words), std::string::npos) << last_refusal() << " lacks " << words;
  }
}

}  // namespace
}  // namespace lockstep::cuda_stand_in
