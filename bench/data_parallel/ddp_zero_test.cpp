#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "bench/data_parallel/ddp.h"
#include "bench/data_parallel/zero.h"
#include "core/error.h"
#include "parallel/parameters/store.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::MemoryKind;
using schedules::Lane;
using schedules::RankStep;
using schedules::StepTimeline;

DdpFlags ddp_flags(std::vector<const char*> words) {
  words.insert(words.begin(), "ddp_overlap_bench");
  return parse_ddp_flags(static_cast<int>(words.size()), words.data());
}

DdpFlags small_ddp_flags(const std::vector<const char*>& more = {}) {
  std::vector<const char*> words{"--model",           "nano", "--layers", "4", "--length", "16",
                                 "--microbatch-size", "2",    "--steps",  "2", "--warmup", "1"};
  words.insert(words.end(), more.begin(), more.end());
  return ddp_flags(words);
}

// The row of these flags, with buckets of 0.1 MiB.
trainer::TrainOptions small_ddp_row(const char* replicas = "2", const char* compression = "none") {
  return ddp_rows(small_ddp_flags({"--dp", replicas, "--bucket-cap-mb", "0.1", "--compression", compression})).front();
}

DdpResult run_small_ddp(const char* replicas, const char* compression, const Tamper& tamper = {}) {
  return run_ddp(small_ddp_flags().step, small_ddp_row(replicas, compression), tamper);
}

std::size_t count_of(const RankStep& rank, Lane lane) {
  std::size_t count = 0;
  for (const schedules::Task& task : rank.tasks) count += task.lane == lane ? 1 : 0;
  return count;
}

TEST(DdpSteps, FourWaysOfOneStep) {
  const DdpSteps steps = ddp_steps(small_ddp_row());
  const RankStep& overlapped = steps.overlapped.of_rank.front();
  EXPECT_GT(count_of(overlapped, Lane::reduce), 2U);
  EXPECT_EQ(count_of(overlapped, Lane::reduce), count_of(steps.one_by_one.of_rank.front(), Lane::reduce));
  EXPECT_EQ(count_of(overlapped, Lane::reduce), steps.collectives.of_rank.front().tasks.size());
  EXPECT_EQ(count_of(overlapped, Lane::compute), steps.kernels.of_rank.front().tasks.size());
}

// Sequential kernels of 1 ms, and collectives of `each_ms`.
StepTimeline timeline_of(const schedules::Step& step, double each_ms) {
  StepTimeline timeline;
  for (const RankStep& rank : step.of_rank) {
    auto& spans = timeline.emplace_back();
    std::int64_t at = 0;
    for (const schedules::Task& task : rank.tasks) {
      const auto takes = static_cast<std::int64_t>(1e9 * (task.lane == Lane::compute ? 1 : each_ms));
      spans.push_back({at, at + takes});
      at += takes;
    }
  }
  return timeline;
}

TEST(DdpTimes, TheRecurrenceOfWhatIsThere) {
  const DdpSteps steps = ddp_steps(small_ddp_row());
  const StepTimeline kernels = timeline_of(steps.kernels, 1);
  const std::vector<double> ready = ready_ms(steps, kernels);
  const auto all = static_cast<double>(steps.kernels.of_rank.front().tasks.size());
  EXPECT_TRUE(std::is_sorted(ready.begin(), ready.end()));
  EXPECT_DOUBLE_EQ(ready.back(), all - 1);  // the optimizer follows it
  EXPECT_DOUBLE_EQ(predicted_ms(steps, kernels, timeline_of(steps.collectives, 0)), all);
  // Collectives so long that they follow each other from the first that is ready on.
  const auto buckets = static_cast<double>(ready.size());
  EXPECT_NEAR(predicted_ms(steps, kernels, timeline_of(steps.collectives, 1000)), ready.front() + 1000 * buckets + 1,
              1e-6);
  EXPECT_LT(backward_ms(steps.kernels, kernels), all);
}

TEST(DdpRun, GradientsAreThoseWithoutOverlapAndThoseOfOneRank) {
  for (const char* const gradient : {"f32", "bf16"}) {
    const DdpFlags flags = small_ddp_flags(
        {"--dtype", "bf16", "--grad-dtype", gradient, "--microbatches", "2", "--dp", "3", "--bucket-cap-mb", "0.1"});
    const DdpResult result = run_ddp(flags.step, ddp_rows(flags).front());
    EXPECT_EQ(result.wrong(), "");
    EXPECT_TRUE(result.in_planned_order);
    EXPECT_EQ(result.samples_ms(step_bench::Mode::overlapped).size(), 2U);
    EXPECT_DOUBLE_EQ(result.sent_bytes(), result.formula_bytes());
    EXPECT_NEAR(result.sent_bytes(), static_cast<double>(result.gradient_bytes) * 4 / 3, 2000) << "and padding";
  }
}

TEST(DdpRun, ABucketThatIsOffByOneBitIsSeen) {
  Tamper tamper;
  tamper.overlapped = [](trainer::RankModel& model) {
    if (model.rank() != 1) return;
    const kernels::InOut gradient = model.stages().front().store->own_gradient_of(2);
    auto* const first = static_cast<std::uint8_t*>(gradient.data);
    *first = static_cast<std::uint8_t>(*first ^ 1U);
  };
  EXPECT_EQ(run_small_ddp("2", "none", tamper).part.wrong(), 2);  // one element a round
}

TEST(DdpRun, CompressedGradientsAreWithinTheirBoundsAndSendLess) {
  std::vector<double> sent;
  for (const char* const compression : {"none", "bf16", "int8"}) {
    for (const char* const replicas : {"2", "3"}) {
      const DdpResult result = run_small_ddp(replicas, compression);
      EXPECT_EQ(result.wrong(), "") << compression << ' ' << replicas;
      EXPECT_DOUBLE_EQ(result.sent_bytes(), result.formula_bytes());
      EXPECT_LE(result.part.worst(), 1);
      if (*replicas == '2') sent.push_back(result.sent_bytes());
    }
  }
  EXPECT_DOUBLE_EQ(sent[1], sent[0] / 2);
  EXPECT_NEAR(sent[2] / sent[0], 65.0 / 256, 0.01);  // a little more where blocks are not full
}

// As if a bucket had been reduced before its last gradient was there, in the very run that others are compared with.
TEST(DdpRun, AGradientThatMissesARankIsBeyondTheBoundOfCodes) {
  for (const char* const compression : {"bf16", "int8"}) {
    Tamper tamper;
    tamper.reference = [](trainer::RankModel& model) {
      if (model.rank() != 1) return;
      const kernels::InOut gradients = model.stages().front().store->own_gradient(0);
      auto* const largest = std::max_element(gradients.as<float>(), gradients.as<float>() + gradients.elems);
      *largest /= 2;
    };
    // The reference's own, and two runs in each of two rounds, which differ from it.
    EXPECT_EQ(run_small_ddp("2", compression, tamper).part.wrong(), 1 + 4) << compression;
  }
}

TEST(DdpFlags, EachLinkHasAllRows) {
  const DdpFlags flags = ddp_flags({"--link", "none;latency_us=5,gbps=2", "--bucket-cap-mb", "0,25", "--dp", "2,4"});
  ASSERT_EQ(ddp_rows(flags).size(), 8U);
  EXPECT_EQ(ddp_rows(ddp_flags({"--compression", "none,bf16,int8", "--dp", "2,4"})).size(), 6U);
  EXPECT_EQ(link_text(flags.links[0]), "none");
  EXPECT_EQ(link_text(flags.links[1]), "5, 2");
}

// Three rounds of one rank that sends `sent_bytes` of 100.
DdpResult made_up_result(std::array<double, 3> step_ms, double sent_bytes) {
  using step_bench::Mode;
  DdpResult result;
  for (const double ms : step_ms) {
    for (const auto& [mode, mode_ms] :
         {std::pair{Mode::kernels, 10.0}, {Mode::exchanges, 8.0}, {Mode::overlapped, ms}, {Mode::serial, 18.0}}) {
      result.part.times.add(mode, step_bench::Direction::forward, {{.us = 1e3 * mode_ms}});
    }
    result.backward_ms.push_back(8);
    result.predicted_ms.push_back(ms);
  }
  result.buckets = 4;
  result.part.checked_passes = 1;
  result.part.ranks = {{.sent_bytes = {sent_bytes, 0}, .least_bytes = 100, .formula_bytes = {100, 0}}};
  return result;
}

TEST(DdpText, TellsTheBestRowOfEachLinkAndWhatIsOversubscribed) {
  const DdpFlags flags =
      small_ddp_flags({"--dp", "2,64", "--link", "none;latency_us=10,gbps=0.5", "--bucket-cap-mb", "1,25"});
  const std::vector<trainer::TrainOptions> rows = ddp_rows(flags);
  std::vector<DdpResult> results;
  std::vector<DdpResult> unclear;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double step = rows[i].layout.bucket_cap_bytes == 25 << 20 ? 14 : 15 + static_cast<double>(i);
    results.push_back(made_up_result({step, step, step}, i == 1 ? 99 : 100));
    unclear.push_back(made_up_result({8, 24, 40}, 100));
  }
  const std::string text = ddp_ending_text(rows, results);
  EXPECT_NE(text.find("# dp 2, links of 10, 0.5: buckets of 25 MiB expose the least communication: 4.00 of 8.00 ms, "
                      "50.00 % hidden; the step takes 14.00 ms"),
            std::string::npos)
      << text;
  EXPECT_NE(ddp_ending_text(rows, unclear)
                .find("# dp 2, no links: which buckets expose the least communication is undecided on this machine: "
                      "spread"),
            std::string::npos);
  unclear[0].buckets = 1;
  EXPECT_EQ(unclear[0].hidden().high, 0);  // complete only when the backward ends
  EXPECT_EQ(program::share_text(unclear[1].hidden()), "undecided");
  EXPECT_NE(text.find("counted bytes equal the formula in 7;"), std::string::npos) << text;
  EXPECT_EQ(results[1].wrong(), "99 bytes sent per rank, but the formula has 100");
  const auto text_of = [&](std::size_t row) { return program::row_text(ddp_columns(rows), {rows[row], results[row]}); };
  EXPECT_EQ(text_of(0).find('*'), std::string::npos);
  EXPECT_NE(text_of(2).find("64*"), std::string::npos);
  EXPECT_NE(ddp_heading_text(flags.step, rows).find("OVERSUBSCRIBED"), std::string::npos);
}

std::int64_t bytes_of(const parallel::BytesByKind& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

ZeroFlags zero_flags(std::vector<const char*> words) {
  words.insert(words.begin(), "zero_bench");
  return parse_zero_flags(static_cast<int>(words.size()), words.data());
}

StepFlags small_zero_flags(const char* microbatches = "1") {
  return zero_flags({"--model", "nano,layers=3,hidden=64", "--microbatch-size", "1", "--microbatches", microbatches,
                     "--length", "16", "--steps", "2", "--warmup", "1"})
      .step;
}

// The row with this layout: "dp=4,zero=3".
trainer::TrainOptions row_of(const StepFlags& flags, const std::string& layout) {
  return zero_row(flags, workload::parse_layout_over(flags.options.layout, layout));
}

ZeroResult run_zero(const StepFlags& flags, const std::string& layout) {
  return run_zero(flags, row_of(flags, layout));
}

// Three buckets of 64 elements: a layer's, a word embedding's that is kept once it is gathered, and an embedding's of
// its own; four ranks, f32.
TEST(ZeroForms, StageThreeGathersAnEmbeddingForForwardsOnly) {
  const ZeroBytes forms = zero_forms({.dp = 4, .zero = 3, .microbatches = 3, .compute = core::DType::f32},
                                     {{64, parallel::ZeroGathers::forward_and_backward},
                                      {64, parallel::ZeroGathers::once_a_step},
                                      {64, parallel::ZeroGathers::once_a_microbatch}});
  EXPECT_EQ(bytes_of(forms.held, MemoryKind::weights), 3 * 64 / 4 * 4);
  EXPECT_EQ(bytes_of(forms.held, MemoryKind::optimizer), 3 * 64 / 4 * 8);
  const std::int64_t pass = std::int64_t{3} * 16 * 4;  // bytes that a rank sends to gather the weights once
  EXPECT_EQ(forms.sent.weights, (2 * 3 + 1 + 3) * pass);
  EXPECT_EQ(forms.sent.gradients, std::int64_t{3} * 3 * pass);
  EXPECT_EQ(forms.most_weights, 3 * 64 + (1 + 2) * 64 * 4);  // shards, the held one, two gathered ahead
}

// The word embedding of a model with a head of its own is gathered for forwards, and its backward reads no weights.
TEST(ZeroRun, BytesAreTheFormulasWithTiedAndUntiedEmbeddings) {
  StepFlags flags = small_zero_flags("2");
  flags.rounds = 1;
  flags.warmup_rounds = 0;
  for (const char* const model :
       {"nano,layers=2,hidden=32,heads=4,sequence=16", "nano,layers=2,hidden=32,heads=4,sequence=16,tied_embeddings=no",
        "nano,layers=2,hidden=32,heads=4,sequence=16,tied_embeddings=no,learned_positions=no",
        "llama-nano,layers=2,hidden=32,heads=4,kv_heads=2,ffn_hidden=64,sequence=16"}) {
    flags.options.model = workload::parse_model(model);
    for (const int stage : {1, 2, 3}) {
      for (const std::string way : {"none", "int8", "int4", "fp8", "sign"}) {
        std::string layout = "dp=4,zero=" + std::to_string(stage) + ",compression=" + way;
        if (stage == 3 && way != "sign") layout += ",weight_compression=" + way;
        if (stage == 3 && way != "fp8") layout += ",secondary_ranks=2";
        if (way == "int4") layout += ",near_ranks=2";
        EXPECT_EQ(run_zero(flags, layout).wrong(), "") << model << ", " << layout;
      }
    }
  }
}

// llama-nano on two ranks, in f32: every parameter is sent twice by halves, and the embedding's once.
TEST(ZeroRun, AnUntiedEmbeddingIsSentOnce) {
  StepFlags flags = small_zero_flags();
  flags.options.model = workload::parse_model("llama-nano,sequence=16");
  const ZeroResult result = run_zero(flags, "dp=2,zero=3");
  EXPECT_EQ(result.wrong(), "");
  const workload::Model& model = flags.options.model;
  const std::int64_t embedding = model.vocabulary * model.hidden;
  EXPECT_DOUBLE_EQ(result.sent.weights, static_cast<double>(2 * result.padded - embedding) / 2 * 4);
}

TEST(ZeroRun, BytesAreTheFormulasWithSeveralMicrobatches) {
  const StepFlags flags = small_zero_flags("2");
  for (const int stage : {0, 1, 2, 3}) {
    for (const char* const more : {"overlap_params=yes,grad_dtype=bf16", "overlap_params=no"}) {
      const std::string layout = "dp=3,dtype=bf16,zero=" + std::to_string(stage) + "," + more;
      const ZeroResult result = run_zero(flags, layout);
      EXPECT_EQ(result.wrong(), "") << layout;
      EXPECT_EQ(result.part.times.samples(kZeroStep, step_bench::Direction::forward).size(), 2U);
      const std::int64_t parameters = parameters_of(flags.options.model);
      EXPECT_GE(result.padded, parameters);
      EXPECT_LT(result.padded, parameters * 101 / 100);
    }
  }
}

// r = 2, and r = 3, which divides no shard.
TEST(ZeroRun, BytesAreTheFormulasWithReplicasOfShards) {
  const StepFlags flags = small_zero_flags("2");
  for (const int stage : {1, 2, 3}) {
    for (const int replicas : {4, 6}) {
      const ZeroResult result =
          run_zero(flags, "dtype=bf16,shard_ranks=2,dp=" + std::to_string(replicas) + ",zero=" + std::to_string(stage) +
                              (replicas == 4 ? ",grad_dtype=bf16" : ""));
      EXPECT_EQ(result.wrong(), "") << stage << " " << replicas;
      // Hidden 64: nothing is padded. All a rank holds are halves; over replicas it sends 2 psi/2 (r-1)/r a reduction.
      const std::int64_t parameters = parameters_of(flags.options.model);
      EXPECT_EQ(result.padded, parameters);
      const double psi_bytes = static_cast<double>(parameters) * (replicas == 4 ? 2 : 4);
      const double a_reduction = replicas == 4 ? psi_bytes / 2 : psi_bytes * 2 / 3;
      EXPECT_NEAR(result.sent.replicas / (a_reduction * (stage >= 2 ? 2 : 1)), 1, 1e-9);
      EXPECT_EQ(bytes_of(result.held, MemoryKind::optimizer), parameters / 2 * 12);
    }
  }
}

TEST(ZeroRun, BytesAreTheFormulasWithAllKindsBeyondTheDevice) {
  const StepFlags flags = small_zero_flags("2");
  for (const char* const compute : {"bf16", "f32"}) {
    for (const std::string place : {"host", "file"}) {
      ZeroResult result = run_zero(flags, "dp=2,zero=3,dtype=" + std::string(compute) +
                                              ",overlap_params=" + (place == "host" ? "yes" : "no") +
                                              ",offload=optimizer:" + place + "+gradients:host+parameters:" + place);
      EXPECT_EQ(result.wrong(), "") << compute;
      EXPECT_EQ(parallel::total_of(result.forms.held), 0);
      EXPECT_GT(result.offloaded[0], 0);
      ++result.offloaded[1];
      EXPECT_NE(result.wrong().find("gradients offloaded"), std::string::npos);
    }
  }
}

// ZeRO++: weights as codes, a secondary copy of the weights, gradients as codes in one hop and in two.
TEST(ZeroRun, BytesAreTheFormulasWithAllOfZeroPlusPlus) {
  const StepFlags flags = small_zero_flags("2");
  const std::string layout = "dp=4,zero=3,dtype=bf16,secondary_ranks=2";
  const ZeroResult secondary = run_zero(flags, layout);
  EXPECT_EQ(secondary.wrong(), "");
  for (const int near_ranks : {0, 2}) {
    const ZeroResult result =
        run_zero(flags, layout + ",weight_compression=int8,compression=int4,near_ranks=" + std::to_string(near_ranks));
    EXPECT_EQ(result.wrong(), "") << near_ranks;
    EXPECT_EQ(result.sent.secondary, secondary.sent.secondary) << "neighbours get weights as they are";
    EXPECT_LT(result.sent.weights, 0.6 * secondary.sent.weights);
    EXPECT_LT(result.sent.gradients, 0.2 * secondary.sent.gradients);
    EXPECT_EQ(result.sent.near > 0, near_ranks > 0);
  }
}

TEST(ZeroFlags, StagesOneToThreeHaveARowForEachSetOfShards) {
  const ZeroFlags flags = zero_flags({"--dp", "4", "--shard-ranks", "0,2", "--prefetch", "1", "--dtype", "f32"});
  std::vector<int> shards;
  for (const trainer::TrainOptions& row : zero_rows(flags)) shards.push_back(shards_of(row.layout));
  EXPECT_EQ(shards, (std::vector<int>{4, 4, 2, 4, 2, 4, 2}));
  EXPECT_THROW(row_of(flags.step, "dp=4,zero=3,shard_ranks=3"), core::Error);
  EXPECT_THROW(row_of(flags.step, "dp=4,zero=3,shard_ranks=1"), core::Error);
}

TEST(ZeroRun, ADifferenceIsToldAndShown) {
  const StepFlags flags = small_zero_flags();
  ZeroResult result = run_zero(flags, "dp=2,zero=1");
  ASSERT_EQ(result.wrong(), "");
  result.held[static_cast<std::size_t>(MemoryKind::optimizer)] += 4;
  result.sent.gradients *= 2;
  result.sent.replicas += 1;
  const std::string wrong = result.wrong();
  EXPECT_NE(wrong.find("optimizer"), std::string::npos);
  EXPECT_NE(wrong.find("gradients sent"), std::string::npos);
  EXPECT_NE(wrong.find("over replicas"), std::string::npos);
  EXPECT_EQ(wrong.find("weights"), std::string::npos);
}

TEST(ZeroText, ThePapersTable) {
  const ZeroFlags flags = zero_flags({});
  const std::string text = zero_heading_text(flags, zero_rows(flags).front());
  EXPECT_NE(text.find("stage 0: 120 GB, stage 1: 31.41 GB, stage 2: 16.64 GB, stage 3: 1.875 GB"), std::string::npos);
}

}  // namespace

}  // namespace lockstep::parallel_bench
