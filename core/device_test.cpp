#include "core/device.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/device_cuda.h"
#include "core/error.h"
#include "core/module_loading.h"
#include "core/open_library.h"
#include "testing/core/thrown.h"

namespace lockstep::core {
namespace {

TEST(CpuDevice, CountsBytesAndRemembersThePeak) {
  const auto device = make_cpu_device();
  void* a = device->allocate(1000);
  void* b = device->allocate(500);
  EXPECT_EQ(device->allocated_bytes(), 1500U);
  device->release(a);
  EXPECT_EQ(device->allocated_bytes(), 500U);
  EXPECT_EQ(device->peak_bytes(), 1500U);
  void* c = device->allocate(100);
  EXPECT_EQ(device->peak_bytes(), 1500U);
  device->release(b);
  device->release(c);
  EXPECT_EQ(device->allocated_bytes(), 0U);
}

TEST(CpuDevice, MemoryIsAlignedZeroedAndWritableToItsLastByte) {
  const auto device = make_cpu_device();
  for (const std::size_t size_bytes : {std::size_t{0}, std::size_t{1}, std::size_t{4097}, (std::size_t{4} << 20) - 1,
                                       std::size_t{4} << 20, (std::size_t{6} << 20) + 3}) {
    auto* memory = static_cast<unsigned char*>(device->allocate(size_bytes));
    ASSERT_NE(memory, nullptr) << size_bytes;
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 128, 0U) << size_bytes;
    EXPECT_EQ(std::accumulate(memory, memory + size_bytes, 0), 0) << size_bytes;
    std::memset(memory, 255, size_bytes);
    device->release(memory);
  }
}

TEST(CpuDevice, LargeBlocksBeginWhereHugePagesDo) {
  const auto device = make_cpu_device();
  for (int i = 0; i < 5; ++i) {
    void* memory = device->allocate((std::size_t{4} << 20) + static_cast<std::size_t>(i) * 12345);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % (std::size_t{2} << 20), 0U);
  }
}

TEST(CpuDevice, RefusesMoreThanThereIs) {
  const auto device = make_cpu_device();
  const std::size_t too_much = available_host_bytes() + (std::size_t{1} << 40);
  const std::string refusal = refusal_of([&] { device->allocate(too_much); });
  EXPECT_TRUE(has(refusal, std::to_string(too_much)));
  EXPECT_TRUE(has(refusal, "are available"));
  EXPECT_EQ(device->allocated_bytes(), 0U);
}

TEST(CpuDevice, ReleasingForeignMemoryIsABug) {
  const auto device = make_cpu_device();
  int mine = 0;
  EXPECT_THROW(device->release(&mine), Error);
  void* memory = device->allocate(8);
  device->release(memory);
  EXPECT_THROW(device->release(memory), Error);
}

TEST(CpuDevice, TakesFromItsAllocatorAndGivesAllBack) {
  std::vector<std::byte> region(4096);
  std::map<void*, std::size_t> out;
  std::size_t used = 0;
  HostAllocator allocator{.allocate =
                              [&](std::size_t size_bytes) {
                                void* memory = region.data() + used;
                                used += size_bytes;
                                out[memory] = size_bytes;
                                return memory;
                              },
                          .release =
                              [&](void* memory, std::size_t size_bytes) {
                                EXPECT_EQ(out.at(memory), size_bytes);
                                out.erase(memory);
                              }};
  {
    const auto device = make_cpu_device(allocator);
    EXPECT_EQ(device->allocate(128), region.data());
    void* second = device->allocate(256);
    device->allocate(512);
    device->release(second);
    EXPECT_EQ(out.size(), 2U);
  }
  EXPECT_TRUE(out.empty());
}

TEST(CpuDevice, CopiesBothWaysAndNothingFromNowhere) {
  const auto device = make_cpu_device();
  std::vector<int> numbers(1000);
  std::iota(numbers.begin(), numbers.end(), 7);
  const std::size_t size_bytes = numbers.size() * sizeof(int);
  void* memory = device->allocate(size_bytes);
  device->copy_to_device(memory, numbers.data(), size_bytes);
  std::vector<int> back(numbers.size());
  device->copy_to_host(back.data(), memory, size_bytes);
  EXPECT_EQ(back, numbers);
  device->copy_to_host(nullptr, nullptr, 0);
}

TEST(CpuDevice, EventsTakeTheTimeBetweenThem) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream();
  const auto start = device->make_event();
  const auto end = device->make_event();
  start->record(*stream);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  end->record(*stream);
  stream->synchronize();
  EXPECT_TRUE(stream->done());
  EXPECT_GE(end->us_since(*start), 5000.0);
  EXPECT_EQ(end->us_since(*start), -start->us_since(*end));
}

TEST(CpuDevice, WorkOnAStreamIsDoneWhenItsCallReturns) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream();
  const auto event = device->make_event();
  auto* numbers = static_cast<int*>(device->allocate_on(*stream, 4 * sizeof(int)));
  auto* pinned = static_cast<int*>(device->allocate_pinned(4 * sizeof(int)));
  EXPECT_EQ(device->allocated_bytes(), 16U) << "pinned memory is the host's";
  EXPECT_EQ(device->reserved_bytes(), 16U);
  std::iota(pinned, pinned + 4, 5);
  device->copy_on(*stream, numbers, pinned, 4 * sizeof(int));
  event->record(*stream);
  stream->wait(*event);
  EXPECT_TRUE(event->done());
  EXPECT_EQ(numbers[3], 8);
  device->zero_on(*stream, numbers, 3 * sizeof(int));
  EXPECT_EQ(numbers[2], 0);
  EXPECT_EQ(numbers[3], 8);
  device->release_pinned(pinned);
  EXPECT_THROW(device->release_pinned(numbers), Error);
  device->release_on(*stream, numbers);
  EXPECT_EQ(device->allocated_bytes(), 0U);
}

TEST(CpuDevice, HasNoGraphsAndReportsSo) {
  const auto device = make_cpu_device();
  const auto stream = device->make_stream();
  EXPECT_FALSE(stream->can_capture());
  bool ran = false;
  EXPECT_TRUE(has(refusal_of([&] { capture(*stream, [&] { ran = true; }); }), "CUDA"));
  EXPECT_FALSE(ran);
}

// The calls that capture() makes on a stream.
class WritingStream final : public Stream {
 public:
  void synchronize() override {}
  bool done() override { return true; }
  void* native() const override { return nullptr; }
  void wait(const Event& /*event*/) override {}
  bool can_capture() const override { return true; }
  void begin_capture() override { calls += "begin "; }
  std::unique_ptr<Graph> end_capture() override {
    calls += "end ";
    throw Error(Failure::cuda, "the capture has failed too");
  }
  std::string calls;
};

TEST(Capture, IsOverWhereTheWorkThrowsAndTheWorksErrorIsTheOneThatIsSeen) {
  WritingStream stream;
  EXPECT_THROW(capture(stream, [] { throw std::out_of_range("the work's"); }), std::out_of_range);
  EXPECT_EQ(stream.calls, "begin end ");
  EXPECT_THROW(capture(stream, [&] { stream.calls += "work "; }), Error);
  EXPECT_EQ(stream.calls, "begin end begin work end ");
}

TEST(CpuDevice, DescribesItself) {
  const auto device = make_cpu_device();
  EXPECT_FALSE(device->name().empty());
  EXPECT_TRUE(device->is_host_memory());
  EXPECT_EQ(device->index(), 0);
}

// Properties of CUDA devices that hold on every machine: with a GPU, without one, without a driver, and not built in.

TEST(CudaDevices, ThereAreSomeOrAReason) {
  const auto why = why_no_cuda();
  EXPECT_EQ(cuda_devices().empty(), why.has_value());
  if (why) {
    EXPECT_TRUE(has(*why, "CUDA"));
    EXPECT_EQ(why->find('\n'), std::string::npos);
  }
}

TEST(CudaDevices, MakingOneThatIsNotThereIsAClearError) {
  const int past_the_end = static_cast<int>(cuda_devices().size());
  for (const int index : {past_the_end, -1}) {
    const Error error = thrown_by([&] { make_cuda_device(index, 3); });
    if (const auto why = why_no_cuda()) {
      EXPECT_TRUE(has(error.what(), *why));
    } else {
      EXPECT_EQ(error.failure(), Failure::usage);
      EXPECT_TRUE(has(error.what(), "rank 3"));
    }
  }
}

std::optional<std::string> variable(const char* name) {
  const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): one thread
  return text == nullptr ? std::nullopt : std::optional<std::string>(text);
}

TEST(ModuleLoading, KernelsAreLoadedWhenUsedOnlyIfRanksShareNoGpu) {
  const auto before = variable("CUDA_MODULE_LOADING");
  const auto chosen = [](int ranks, int gpus, const char* given = nullptr) {
    unsetenv("CUDA_MODULE_LOADING");                                // NOLINT(concurrency-mt-unsafe)
    if (given != nullptr) setenv("CUDA_MODULE_LOADING", given, 1);  // NOLINT(concurrency-mt-unsafe)
    choose_module_loading(ranks, gpus);
    return variable("CUDA_MODULE_LOADING");
  };
  EXPECT_EQ(chosen(1, 1), "LAZY");
  EXPECT_EQ(chosen(8, 8), "LAZY");
  EXPECT_EQ(chosen(2, 1), std::nullopt);
  EXPECT_EQ(chosen(1, 1, "EAGER"), "EAGER") << "the user's choice is kept";
  unsetenv("CUDA_MODULE_LOADING");                                // NOLINT(concurrency-mt-unsafe)
  if (before) setenv("CUDA_MODULE_LOADING", before->c_str(), 1);  // NOLINT(concurrency-mt-unsafe)
}

TEST(ModuleLoading, WithoutNvmlNobodyKnowsTheGpus) {
  EXPECT_EQ(gpus_before_cuda("libnothing.so.9"), std::nullopt);
  EXPECT_EQ(gpus_before_cuda("libm.so.6"), std::nullopt);
}

TEST(Trace, RangesNestInEveryBuild) {
  const ScopedRange outer("outer");
  const ScopedRange inner("inner");
  EXPECT_EQ(trace_ranges_built(), !why_no_cuda() || why_no_cuda()->find("not built in") == std::string::npos);
}

TEST(OpenedLibrary, TheFirstThatIsThereIsTaken) {
  const OpenedLibrary opened("maths", Failure::cuda, std::array{"libnowhere.so.1", "libm.so.6"});
  EXPECT_DOUBLE_EQ(opened.find<double(double)>("cbrt")(27), 3);
}

TEST(OpenedLibrary, OneThatIsMissingIsNamedWithAllPlaces) {
  const Error error = thrown_by([] {
    const OpenedLibrary opened("NCCL", Failure::nccl, std::array{"libnowhere.so.1", "/not/there/libnowhere.so"});
  });
  EXPECT_EQ(error.failure(), Failure::nccl);
  const std::string text = error.what();
  EXPECT_TRUE(text.starts_with("NCCL cannot be opened")) << text;
  EXPECT_TRUE(has(text, "LD_LIBRARY_PATH"));
  EXPECT_TRUE(has(text, "libnowhere.so.1: cannot open"));
  EXPECT_TRUE(has(text, "/not/there/libnowhere.so: cannot open"));
}

TEST(OpenedLibrary, AFunctionThatIsMissingIsNamed) {
  const OpenedLibrary opened("maths", Failure::cuda, std::array{"libm.so.6"});
  EXPECT_EQ(error_text([&] { opened.find<void()>("no_such_function"); }), "maths has no no_such_function");
}

}  // namespace
}  // namespace lockstep::core
