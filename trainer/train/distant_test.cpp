// Training on a device whose memory the host may access by copies only.
#include <sys/mman.h>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "core/device.h"
#include "core/error.h"
#include "schedules/interpreter/interpreter.h"
#include "testing/trainer/checkpoint_ranks.h"
#include "testing/trainer/run.h"
#include "testing/trainer/stores.h"
#include "trainer/train/rank_trainer.h"
#include "trainer/train/train.h"

namespace lockstep::trainer {

// Memory that is closed but while somebody holds it open: an access at any other time is a fault of the processor,
// which ends the test program.
class GuardedPages {
 public:
  explicit GuardedPages(std::size_t size_bytes) : size_bytes_(size_bytes) {
    void* const pages = mmap(nullptr, size_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    LOCKSTEP_CHECK(pages != MAP_FAILED, "address space for guarded pages");
    pages_ = static_cast<std::byte*>(pages);
  }
  ~GuardedPages() { munmap(pages_, size_bytes_); }
  GuardedPages(const GuardedPages&) = delete;
  GuardedPages& operator=(const GuardedPages&) = delete;

  core::HostAllocator allocator() {
    return {[this](std::size_t size_bytes) { return take(size_bytes); }, [](void*, std::size_t) {}};
  }

  // Open until what this returns is gone.
  std::shared_ptr<void> open() {
    count(1);
    return {this, [](GuardedPages* pages) { pages->count(-1); }};
  }

 private:
  // Handed out once.
  void* take(std::size_t size_bytes) {
    constexpr std::size_t kGrain = 128;
    const std::lock_guard lock(mutex_);
    std::byte* const memory = pages_ + taken_;
    taken_ += (size_bytes + kGrain - 1) / kGrain * kGrain;
    LOCKSTEP_CHECK(taken_ <= size_bytes_, "guarded pages that are enough");
    return memory;
  }
  void count(int more) {
    const std::lock_guard lock(mutex_);
    const bool was_open = open_ > 0;
    open_ += more;
    if (was_open == (open_ > 0)) return;
    const int access = open_ > 0 ? PROT_READ | PROT_WRITE : PROT_NONE;
    LOCKSTEP_CHECK(mprotect(pages_, size_bytes_, access) == 0, "guarded pages");
  }

  const std::size_t size_bytes_;
  std::byte* pages_ = nullptr;
  std::mutex mutex_;
  std::size_t taken_ = 0;
  int open_ = 0;
};

// The trainer on a device whose memory is not the host's: what it computes is the same, bit for bit, and it touches
// that memory by kernels, collectives and copies alone.
namespace {

constexpr std::int64_t kFewSteps = 3;

std::unique_ptr<core::Device> distant(std::unique_ptr<core::Device> cpu) {
  return std::make_unique<parallel::DistantDevice>(std::move(cpu));
}

TrainOptions few_steps(const workload::Layout& layout) {
  TrainOptions options = options_of(layout, kFewSteps);
  options.model.layers = 2;
  options.validation_sequences = 16;
  return options;
}

void expect_the_same_far_away(TrainOptions options) {
  SCOPED_TRACE(text_of(options.layout));
  const TrainResult near = run(options);
  options.wrap_device = distant;
  const TrainResult far = run(options);
  EXPECT_EQ(difference(near, far, 0), "");
  EXPECT_EQ(near.sample, far.sample);
}

TEST(DistantMemory, OneRank) {
  TrainOptions options = few_steps({.microbatches = 2});
  options.sample_tokens = 3;
  expect_the_same_far_away(options);
}

TEST(DistantMemory, DataParallelWithEveryStageOfZero) {
  for (const std::int32_t zero : {0, 1, 2, 3}) {
    expect_the_same_far_away(few_steps({.dp = 2, .zero = zero, .microbatches = 2, .bucket_cap_bytes = 20'000}));
  }
}

TEST(DistantMemory, ShardsInReplicas) {
  expect_the_same_far_away(few_steps({.dp = 4, .zero = 3, .shard_ranks = 2, .bucket_cap_bytes = 20'000}));
}

TEST(DistantMemory, ASecondaryCopy) {
  expect_the_same_far_away(few_steps({.dp = 4, .zero = 3, .secondary_ranks = 2, .bucket_cap_bytes = 20'000}));
}

TEST(DistantMemory, TensorParallel) {
  TrainOptions options = few_steps({.tp = 2});
  options.sample_tokens = 2;
  expect_the_same_far_away(options);
  expect_the_same_far_away(few_steps({.tp = 2, .sequence_parallel = true, .recompute = workload::Recompute::full}));
}

TEST(DistantMemory, Pipelines) {
  expect_the_same_far_away(few_steps({.pp = 2, .schedule = "1f1b", .microbatches = 4}));
  expect_the_same_far_away(few_steps({.pp = 2, .schedule = "zb_h1", .microbatches = 4}));
}

TEST(DistantMemory, AllOfThemInNarrowFormats) {
  for (const core::DType dtype : {core::DType::bf16, core::DType::f16}) {
    TrainOptions options = few_steps(all_of_them());
    options.layout.gradient = dtype;
    options.layout.compute = dtype;
    expect_the_same_far_away(options);
  }
}

TEST(DistantMemory, CompressedGradients) {
  for (const workload::Compression compression : {workload::CompressionWay::bf16, workload::CompressionWay::int8}) {
    TrainOptions options = few_steps({.dp = 2});
    options.layout.compression = compression;
    expect_the_same_far_away(options);
  }
}

// A checkpoint is the same wherever it was written, and goes on in the other place.
TEST(DistantMemory, CheckpointsGoBothWays) {
  TrainOptions near = few_steps({.dp = 2, .tp = 2, .zero = 2});
  near.layout.compute = core::DType::bf16;
  TrainOptions far = near;
  far.wrap_device = distant;
  const TrainResult whole = run(near);
  EXPECT_EQ(difference(whole, resumed(near, far, 1), 0), "");
  EXPECT_EQ(difference(whole, resumed(far, near, 1), 0), "");
}

// Holds the pages open while tasks run: what kernels and collectives of the CPU may touch.
class OpenInTasks final : public schedules::StageWorker {
 public:
  OpenInTasks(schedules::StageWorker& inner, GuardedPages& pages) : inner_(inner), pages_(pages) {}
  bool begin(std::uint32_t task) override {
    const auto open = pages_.open();
    return inner_.begin(task);
  }
  bool ended(std::uint32_t task) override { return inner_.ended(task); }
  void idle(int thread) override { inner_.idle(thread); }
  void finish() override { inner_.finish(); }
  schedules::TaskSpan span_of(std::uint32_t task) const override { return inner_.span_of(task); }

 private:
  schedules::StageWorker& inner_;
  GuardedPages& pages_;
};

// Weights, tokens, gradients' zeros, losses and checkpoints go through the device's copies alone: everything outside of
// tasks finds the memory closed.
TEST(DistantMemory, IsClosedOutsideOfTasks) {
  const TemporaryFolder folder;
  GuardedPages pages(std::size_t{64} << 20);
  TrainOptions options = checked(few_steps({.microbatches = 2}));
  options.validation_sequences = 1;
  const TrainResult near = run(options);
  options.checkpoint_folder = folder / "checkpoints";
  options.wrap_device = [&pages](std::unique_ptr<core::Device> /*cpu*/) {
    return std::make_unique<parallel::DistantDevice>(core::make_cpu_device(pages.allocator()),
                                                     [&pages] { return pages.open(); });
  };
  const auto wrap = [&pages](schedules::StageWorker& worker) { return std::make_unique<OpenInTasks>(worker, pages); };
  run_trainers(options, [&](const TrainStep& /*made*/, RankTrainer& trainer) {
    EXPECT_EQ(trainer.train_step(1, wrap).loss, near.steps[0].loss);
    save_run(trainer, options, 1);
    EXPECT_EQ(trainer.train_step(2, wrap).loss, near.steps[1].loss);
    EXPECT_EQ(resume_run(trainer, options, options.checkpoint_folder), 1);
    EXPECT_EQ(trainer.train_step(2, wrap).loss, near.steps[1].loss);
    EXPECT_EQ(trainer.train_step(3, wrap).loss, near.steps[2].loss);
  });
}

TEST(DistantMemoryDeathTest, AReadThatIsNoCopyIsAFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  GuardedPages pages(std::size_t{1} << 20);
  const core::HostAllocator allocator = pages.allocator();
  auto* const memory = static_cast<volatile int*>(allocator.allocate(sizeof(int)));
  {
    const auto open = pages.open();
    *memory = 7;
  }
  EXPECT_DEATH(static_cast<void>(*memory), "");
  const auto open = pages.open();
  EXPECT_EQ(*memory, 7);
}

}  // namespace
}  // namespace lockstep::trainer
