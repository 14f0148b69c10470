// The benchmarks' steps on a device whose work is queued in several streams: gradients and weights are the CPU's bit
// for bit, bytes are counted alike, and waits between streams put all that touches the same memory in order.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bench/data_parallel/checks.h"
#include "bench/data_parallel/ddp.h"
#include "bench/data_parallel/step_rank.h"
#include "bench/step/sent_counter.h"
#include "testing/trainer/queued_device.h"
#include "trainer/train/train.h"

namespace lockstep::parallel_bench {
namespace {

using trainer::QueuedDevice;
using trainer::TrainWorker;

trainer::TrainOptions small_options() {
  trainer::TrainOptions options;
  options.model = workload::parse_model("layers=2,hidden=32,heads=4,vocabulary=256,sequence=16,dropout=no");
  options.layout.dp = 2;
  options.layout.microbatches = 2;
  options.layout.microbatch_size = 2;
  options.layout.bucket_cap_bytes = 20'000;
  options.synthetic_bytes = 1 << 14;
  return trainer::checked(options);
}

struct Found {
  std::vector<std::vector<float>> values;  // rank 0's gradients and weights after each way
  std::int64_t sent_bytes = 0;             // by rank 0
  std::vector<std::string> races;          // on all ranks
};

Found run_both_ways(const trainer::TrainOptions& options) {
  const DdpSteps steps = ddp_steps(options);
  const std::array<const schedules::Step*, 2> ways{&steps.overlapped, &steps.one_by_one};
  const auto corpus = trainer::Corpus::synthetic(options.seed, options.synthetic_bytes, options.model.sequence);
  Found found;
  std::mutex mutex;
  trainer::run_ranks(options, steps.made, ways, [&](backends::MeshRank& plain, const trainer::ChannelMap& channels) {
    step_bench::SentCounter counter(channels.channels());
    backends::MeshRank mesh = counter.counting(plain);
    StepRank rank(options, steps.made, corpus, mesh, channels);
    TrainWorker overlapped(steps.overlapped, rank.model());
    TrainWorker one_by_one(steps.one_by_one, rank.model());
    const std::array<TrainWorker*, 2> workers{&overlapped, &one_by_one};
    for (std::size_t way = 0; way < ways.size(); ++way) rank.rehearse(*workers[way], *ways[way]);
    const std::vector<float> start = masters_of(rank.model());
    for (std::size_t way = 0; way < ways.size(); ++way) {
      start_again(rank.model(), start);
      rank.begin(*workers[way], 1);
      rank.meet();
      rank.run(*workers[way], *ways[way]);
      if (rank.rank() != 0) continue;
      found.values.push_back(gradients_of(rank.model()));
      found.values.push_back(masters_of(rank.model()));
    }
    if (rank.rank() == 0) found.sent_bytes = counter.so_far().sent;
    const std::lock_guard lock(mutex);
    if (auto* const device = dynamic_cast<QueuedDevice*>(&rank.model().memory().device())) {
      for (const std::string& race : device->state().checker.races()) found.races.push_back(race);
    }
  });
  return found;
}

TEST(QueuedSteps, AreThoseOfTheCpu) {
  const Found at_once = run_both_ways(small_options());
  ASSERT_EQ(at_once.values.size(), 4U);
  EXPECT_EQ(at_once.values[0], at_once.values[2]);
  EXPECT_EQ(at_once.values[1], at_once.values[3]);
  for (const bool threads : {false, true}) {
    trainer::TrainOptions options = small_options();
    options.device.cuda = true;
    std::atomic<std::uint64_t> devices{0};
    options.wrap_device = [&](std::unique_ptr<core::Device> /*none*/) {
      return std::make_unique<QueuedDevice>(trainer::QueuedOptions{.threads = threads, .seed = ++devices});
    };
    const Found queued = run_both_ways(options);
    EXPECT_EQ(queued.values, at_once.values);
    EXPECT_EQ(queued.sent_bytes, at_once.sent_bytes);
    for (const std::string& race : queued.races) ADD_FAILURE() << race;
  }
}

// A row of ddp_overlap_bench as on a GPU: all four ways, their times by events, and all checks.
TEST(QueuedRows, OfDdpOverlapBenchAreRightAndThoseOfTheCpu) {
  StepFlags flags;
  trainer::TrainOptions row = small_options();
  row.layout.bucket_cap_bytes = 100'000;
  row.model = workload::parse_model(
      "layers=6,hidden=64,heads=4,vocabulary=1024,sequence=16,dropout=no");  // more than the first bucket's 1 MiB
  flags.rounds = 1;
  flags.warmup_rounds = 1;
  const DdpResult at_once = run_ddp(flags, row);
  row.device.cuda = true;
  std::atomic<std::uint64_t> devices{0};
  row.wrap_device = [&](std::unique_ptr<core::Device> /*none*/) {
    return std::make_unique<QueuedDevice>(trainer::QueuedOptions{.seed = ++devices});
  };
  std::mutex mutex;
  std::vector<std::string> races;
  Tamper look;
  look.overlapped = [&](trainer::RankModel& model) {
    const std::lock_guard lock(mutex);
    const auto& found = dynamic_cast<QueuedDevice&>(model.memory().device()).state().checker.races();
    races.insert(races.end(), found.begin(), found.end());
  };
  const DdpResult queued = run_ddp(flags, row, look);
  for (const std::string& race : races) ADD_FAILURE() << race;
  EXPECT_EQ(queued.wrong(), "");
  EXPECT_GT(queued.buckets, 2);
  EXPECT_EQ(queued.buckets, at_once.buckets);
  EXPECT_EQ(queued.sent_bytes(), at_once.sent_bytes());
  EXPECT_EQ(queued.relative_error, at_once.relative_error);
  for (std::size_t mode = 0; mode < step_bench::kNumModes; ++mode) {
    const std::vector<double> samples = queued.samples_ms(static_cast<step_bench::Mode>(mode));
    EXPECT_EQ(samples.size(), 1U);
    EXPECT_GT(samples.front(), 0);
  }
  EXPECT_GT(queued.backward_ms.front(), 0);
  EXPECT_GT(queued.predicted_ms.front(), 0);
  for (const auto& rank : queued.timeline) {
    EXPECT_TRUE(std::any_of(rank.begin(), rank.end(), [](const auto& span) { return span.end_ps > span.start_ps; }));
  }
  EXPECT_NE(queued.part.energy_text.find("no energy"), std::string::npos) << queued.part.energy_text;
  Tamper one_bit = look;
  one_bit.overlapped = [](trainer::RankModel& model) {
    if (model.rank() != 1) return;
    auto* const gradient = static_cast<std::uint8_t*>(model.stages().front().store->own_gradient_of(2).data);
    *gradient = static_cast<std::uint8_t>(*gradient ^ 1U);
  };
  EXPECT_EQ(run_ddp(flags, row, one_bit).part.wrong(), 1);
}

}  // namespace
}  // namespace lockstep::parallel_bench
