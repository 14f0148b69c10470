#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "bench/parallel/ddp.h"
#include "bench/parallel/zero.h"
#include "core/error.h"
#include "parallel/parameters/store.h"

namespace lockstep::parallel_bench {
namespace {

using parallel::MemoryKind;
using schedules::Lane;
using schedules::RankStep;
using schedules::StepTimeline;

DdpFlags small_ddp_flags() {
  DdpFlags flags;
  flags.step.program = "ddp_overlap_bench";
  flags.step.options.model = workload::parse_model("nano");
  flags.step.options.model.layers = 4;
  flags.step.options.layout.microbatch_size = 2;
  flags.step.options.model.sequence = 16;
  flags.step.rounds = 2;
  flags.step.warmup_rounds = 1;
  return flags;
}

std::size_t count_of(const RankStep& rank, Lane lane) {
  std::size_t count = 0;
  for (const schedules::Task& task : rank.tasks) count += task.lane == lane ? 1 : 0;
  return count;
}

TEST(DdpSteps, FourWaysOfOneStep) {
  const DdpFlags flags = small_ddp_flags();
  const DdpSteps steps = ddp_steps(options_of(flags, {2, 0.1, {}}));
  const RankStep& overlapped = steps.overlapped.of_rank.front();
  EXPECT_GT(count_of(overlapped, Lane::reduce), 2U);
  EXPECT_EQ(count_of(overlapped, Lane::reduce), count_of(steps.one_by_one.of_rank.front(), Lane::reduce));
  EXPECT_EQ(count_of(overlapped, Lane::reduce), steps.collectives.of_rank.front().tasks.size());
  EXPECT_EQ(count_of(overlapped, Lane::compute), steps.kernels.of_rank.front().tasks.size());
}

// Kernels of 1 ms, one after the other, and collectives of `each_ms`.
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
  const DdpSteps steps = ddp_steps(options_of(small_ddp_flags(), {2, 0.1, {}}));
  const StepTimeline kernels = timeline_of(steps.kernels, 1);
  const std::vector<double> ready = ready_ms(steps, kernels);
  const auto all = static_cast<double>(steps.kernels.of_rank.front().tasks.size());
  EXPECT_TRUE(std::is_sorted(ready.begin(), ready.end()));
  EXPECT_DOUBLE_EQ(ready.back(), all - 1);  // the optimizer is behind it
  EXPECT_DOUBLE_EQ(predicted_ms(steps, kernels, timeline_of(steps.collectives, 0)), all);
  // Collectives so long that they follow each other from the first that is ready on.
  const auto buckets = static_cast<double>(ready.size());
  EXPECT_NEAR(predicted_ms(steps, kernels, timeline_of(steps.collectives, 1000)), ready.front() + 1000 * buckets + 1,
              1e-6);
  EXPECT_LT(backward_ms(steps.kernels, kernels), all);
}

TEST(DdpRun, GradientsAreThoseWithoutOverlapAndThoseOfOneRank) {
  for (const core::DType gradient : {core::DType::f32, core::DType::bf16}) {
    DdpFlags flags = small_ddp_flags();
    flags.step.options.layout.compute = core::DType::bf16;
    flags.step.options.layout.gradient = gradient;
    flags.step.options.layout.microbatches = 2;
    const DdpResult result = run_ddp(flags, {3, 0.1, {}});
    EXPECT_EQ(result.wrong, 0);
    EXPECT_TRUE(result.in_planned_order);
    EXPECT_EQ(result.rounds.step_ms.size(), 2U);
    EXPECT_DOUBLE_EQ(result.sent_bytes, result.formula_bytes);
    EXPECT_NEAR(result.sent_bytes, static_cast<double>(result.gradient_bytes) * 4 / 3, 2000) << "and padding";
    EXPECT_TRUE(result.is_right());
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
  EXPECT_EQ(run_ddp(small_ddp_flags(), {2, 0.1, {}}, tamper).wrong, 2);  // one element a round
}

TEST(DdpRun, CompressedGradientsAreWithinTheirBoundsAndSendLess) {
  std::vector<double> sent;
  for (const workload::Compression compression :
       {workload::CompressionWay::none, workload::CompressionWay::bf16, workload::CompressionWay::int8}) {
    for (const int replicas : {2, 3}) {
      const DdpResult result = run_ddp(small_ddp_flags(), {replicas, 0.1, {}, compression});
      EXPECT_EQ(result.wrong, 0) << text_of(compression) << ' ' << replicas;
      EXPECT_TRUE(result.sent_as_formula()) << text_of(compression) << ' ' << replicas;
      EXPECT_DOUBLE_EQ(result.sent_bytes, result.formula_bytes);
      EXPECT_LE(result.most_of_bound, 1);
      if (replicas == 2) sent.push_back(result.sent_bytes);
    }
  }
  EXPECT_DOUBLE_EQ(sent[1], sent[0] / 2);
  EXPECT_NEAR(sent[2] / sent[0], 65.0 / 256, 0.01);  // a little more where blocks are not full
}

// As if a bucket had been reduced before its last gradient was there, in the very run that others are compared with.
TEST(DdpRun, AGradientThatMissesARankIsBeyondTheBoundOfCodes) {
  for (const workload::Compression compression : {workload::CompressionWay::bf16, workload::CompressionWay::int8}) {
    Tamper tamper;
    tamper.reference = [](trainer::RankModel& model) {
      if (model.rank() != 1) return;
      const kernels::InOut gradients = model.stages().front().store->own_gradient(0);
      auto* const largest = std::max_element(gradients.as<float>(), gradients.as<float>() + gradients.elems);
      *largest /= 2;
    };
    // The reference's own, and two runs in each of two rounds, which differ from it.
    EXPECT_EQ(run_ddp(small_ddp_flags(), {2, 0.1, {}, compression}, tamper).wrong, 1 + 4) << text_of(compression);
  }
}

TEST(DdpFlags, LinksAndRefusals) {
  const auto parsed = [](std::vector<const char*> words) {
    words.insert(words.begin(), "ddp_overlap_bench");
    return parse_ddp_flags(static_cast<int>(words.size()), words.data());
  };
  const DdpFlags flags = parsed({"--link", "none;latency_us=5,gbps=2", "--bucket-cap-mb", "0,25", "--dp", "2,4"});
  ASSERT_EQ(ddp_cases(flags).size(), 8U);
  EXPECT_EQ(ddp_cases(parsed({"--compression", "none,bf16,int8", "--dp", "2,4"})).size(), 6U);
  EXPECT_EQ(link_text(flags.links[0]), "none");
  EXPECT_EQ(link_text(flags.links[1]), "5, 2");
  EXPECT_THROW(parsed({"--dp", "1,2"}), core::Error);
  EXPECT_THROW(parsed({"--link", "fast"}), core::Error);
  EXPECT_THROW(parsed({"--compression", "none,int2"}), core::Error);
}

// Whatever is refused, nothing is printed before it.
TEST(DdpProgram, RefusesBeforeTheHeading) {
  const auto refused = [](const auto& change) {
    DdpFlags flags = small_ddp_flags();
    change(flags);
    std::string printed;
    EXPECT_THROW(run_ddp_overlap(flags, [&](const std::string& text) { printed += text; }), core::Error);
    EXPECT_EQ(printed, "");
  };
  refused([](DdpFlags& flags) { flags.step.options.algorithm = "pigeon"; });
  refused([](DdpFlags& flags) { flags.step.options.algorithm = "library"; });
  refused([](DdpFlags& flags) { flags.step.options.algorithm = "one_shot"; });
  refused([](DdpFlags& flags) { flags.step.options.algorithm = "ring:lanes=99"; });
  refused([](DdpFlags& flags) { flags.step.options.model.heads = 7; });
  refused([](DdpFlags& flags) { flags.step.options.model.sequence = 1 << 20; });
  refused([](DdpFlags& flags) { flags.step.options.layout.microbatch_size = 1 << 20; });  // too little memory
  refused([](DdpFlags& flags) { flags.step.json_file = "/nowhere/at/all.jsonl"; });
  refused([](DdpFlags& flags) {
    flags.step.options.layout.compute = flags.step.options.layout.gradient = core::DType::bf16;
    flags.compressions = {workload::CompressionWay::none, workload::CompressionWay::int8};
  });
}

TEST(DdpText, TellsTheBestRowOfEachLinkAndWhatIsOversubscribed) {
  DdpFlags flags = small_ddp_flags();
  flags.step.replicas = {2, 64};
  flags.links = {Link(), transports::LinkSpec{10, 0.5}};
  flags.bucket_caps_mb = {1, 25};
  const std::vector<DdpCase> cases = ddp_cases(flags);
  std::vector<DdpResult> results(cases.size());
  for (std::size_t i = 0; i < cases.size(); ++i) {
    DdpRounds& rounds = results[i].rounds;
    const double step = cases[i].bucket_cap_mb == 25 ? 14 : 15 + static_cast<double>(i);
    rounds = {{10, 10}, {8, 8}, {step, step}, {18, 18}, {8, 8}, {1, 1}, {step, step}};
    results[i].buckets = 4;
    results[i].least_bytes = results[i].formula_bytes = results[i].sent_bytes = 100;
  }
  results[1].sent_bytes = 99;
  const std::string text = ddp_ending_text(cases, results);
  EXPECT_NE(text.find("# dp 2, links of 10, 0.5: buckets of 25 MiB expose the least communication: 4.00 of 8.00 ms, "
                      "50.00 % hidden; "
                      "the step takes 14.00 ms"),
            std::string::npos)
      << text;
  for (DdpResult& result : results) result.rounds.step_ms = {8, 40};
  EXPECT_NE(ddp_ending_text(cases, results)
                .find("# dp 2, no links: which buckets expose the least communication is undecided on this machine: "
                      "spread"),
            std::string::npos);
  results[0].buckets = 1;
  EXPECT_EQ(results[0].hidden().high, 0);  // complete only when the backward ends
  EXPECT_EQ(program::share_text(results[1].hidden()), "undecided");
  EXPECT_NE(text.find("counted bytes equal the formula in 7;"), std::string::npos) << text;
  EXPECT_NE(ddp_row_text(flags, cases[1], results[1]).find("bytes\n"), std::string::npos);
  EXPECT_EQ(ddp_row_text(flags, cases[0], results[0]).find('*'), std::string::npos);
  EXPECT_NE(ddp_row_text(flags, cases[2], results[2]).find("64*"), std::string::npos);
  EXPECT_NE(ddp_heading_text(flags).find("OVERSUBSCRIBED"), std::string::npos);
}

std::int64_t bytes_of(const parallel::BytesByKind& bytes, MemoryKind kind) {
  return bytes[static_cast<std::size_t>(kind)];
}

ZeroFlags small_zero_flags() {
  ZeroFlags flags;
  flags.step.program = "zero_bench";
  flags.step.options.model = workload::parse_model("nano,layers=3,hidden=64");
  flags.step.options.layout.microbatch_size = 1;
  flags.step.options.model.sequence = 16;
  flags.step.rounds = 2;
  flags.step.warmup_rounds = 1;
  return flags;
}

// Three buckets of 64 elements: a layer's, a word embedding's that is kept once it is gathered, and an embedding's of
// its own; four ranks, f32.
TEST(ZeroForms, StageThreeGathersAnEmbeddingForForwardsOnly) {
  const ZeroForms forms = zero_forms({.replicas = 4, .stage = 3, .prefetch = true},
                                     {{64, parallel::ZeroGathers::forward_and_backward},
                                      {64, parallel::ZeroGathers::once_a_step},
                                      {64, parallel::ZeroGathers::once_a_microbatch}},
                                     {.microbatches = 3});
  EXPECT_EQ(bytes_of(forms.held, MemoryKind::weights), 3 * 64 / 4 * 4);
  EXPECT_EQ(bytes_of(forms.held, MemoryKind::optimizer), 3 * 64 / 4 * 8);
  const std::int64_t pass = std::int64_t{3} * 16 * 4;  // bytes that a rank sends to gather one of them
  EXPECT_EQ(forms.sent.weights, (2 * 3 + 1 + 3) * pass);
  EXPECT_EQ(forms.sent.gradients, std::int64_t{3} * 3 * pass);
  EXPECT_EQ(forms.most_weights, 3 * 64 + (1 + 2) * 64 * 4);  // shards, the held one, two gathered ahead
}

// The word embedding of a model with a head of its own is gathered for forwards, and its backward reads no weights.
TEST(ZeroRun, BytesAreTheFormulasWithTiedAndUntiedEmbeddings) {
  using workload::CompressionWay;
  ZeroFlags flags = small_zero_flags();
  flags.step.rounds = 1;
  flags.step.warmup_rounds = 0;
  flags.step.options.layout.microbatches = 2;
  for (const char* const model :
       {"nano,layers=2,hidden=32,heads=4,sequence=16", "nano,layers=2,hidden=32,heads=4,sequence=16,tied_embeddings=no",
        "nano,layers=2,hidden=32,heads=4,sequence=16,tied_embeddings=no,learned_positions=no",
        "llama-nano,layers=2,hidden=32,heads=4,kv_heads=2,ffn_hidden=64,sequence=16"}) {
    flags.step.options.model = workload::parse_model(model);
    for (const int stage : {1, 2, 3}) {
      for (const CompressionWay way : {CompressionWay::none, CompressionWay::int8, CompressionWay::int4,
                                       CompressionWay::fp8, CompressionWay::sign}) {
        const bool weights = stage == 3 && way != CompressionWay::none && way != CompressionWay::sign;
        const ZeroRow row{.replicas = 4,
                          .stage = stage,
                          .secondary_ranks = stage == 3 && way != CompressionWay::fp8 ? 2 : 0,
                          .weight_compression = weights ? way : CompressionWay::none,
                          .compression = way,
                          .near_ranks = way == CompressionWay::int4 ? 2 : 0};
        EXPECT_EQ(run_zero(flags, row).wrong(), "") << model << ", stage " << stage << ", " << text_of(row.compression);
      }
    }
  }
}

// llama-nano on two ranks, in f32: every parameter is sent twice by halves, and those of the embedding once.
TEST(ZeroRun, AnUntiedEmbeddingIsSentOnce) {
  ZeroFlags flags = small_zero_flags();
  flags.step.options.model = workload::parse_model("llama-nano,sequence=16");
  const ZeroResult result = run_zero(flags, {.replicas = 2, .stage = 3});
  EXPECT_EQ(result.wrong(), "");
  const workload::Model& model = flags.step.options.model;
  const std::int64_t embedding = model.vocabulary * model.hidden;
  EXPECT_DOUBLE_EQ(result.sent.weights, static_cast<double>(2 * result.padded - embedding) / 2 * 4);
}

TEST(ZeroRun, BytesAreTheFormulasWithSeveralMicrobatches) {
  ZeroFlags flags = small_zero_flags();
  flags.step.options.layout.microbatches = 2;
  for (const int stage : {0, 1, 2, 3}) {
    for (const bool prefetch : {true, false}) {
      const ZeroRow row{.replicas = 3,
                        .stage = stage,
                        .prefetch = prefetch,
                        .compute = core::DType::bf16,
                        .gradient = prefetch ? core::DType::bf16 : core::DType::f32};
      const ZeroResult result = run_zero(flags, row);
      EXPECT_EQ(result.wrong(), "") << stage << " " << prefetch;
      EXPECT_EQ(result.samples_ms.size(), 2U);
      EXPECT_GE(result.padded, result.parameters);
      EXPECT_LT(result.padded, result.parameters * 101 / 100);
    }
  }
}

// r = 2, and r = 3, which divides no shard.
TEST(ZeroRun, BytesAreTheFormulasWithReplicasOfShards) {
  ZeroFlags flags = small_zero_flags();
  flags.step.options.layout.microbatches = 2;
  for (const int stage : {1, 2, 3}) {
    for (const int replicas : {4, 6}) {
      const ZeroRow row{.replicas = replicas,
                        .stage = stage,
                        .compute = core::DType::bf16,
                        .gradient = replicas == 4 ? core::DType::bf16 : core::DType::f32,
                        .shard_ranks = 2};
      const ZeroResult result = run_zero(flags, row);
      EXPECT_EQ(result.wrong(), "") << stage << " " << replicas;
      // Hidden 64: nothing is padded. All a rank holds are halves; over replicas it sends 2 psi/2 (r-1)/r a reduction.
      EXPECT_EQ(result.padded, result.parameters);
      const double psi_bytes = static_cast<double>(result.parameters) * (replicas == 4 ? 2 : 4);
      const double a_reduction = replicas == 4 ? psi_bytes / 2 : psi_bytes * 2 / 3;
      EXPECT_NEAR(result.sent.replicas / (a_reduction * (stage >= 2 ? 2 : 1)), 1, 1e-9);
      EXPECT_EQ(bytes_of(result.held, MemoryKind::optimizer), result.parameters / 2 * 12);
    }
  }
}

TEST(ZeroRun, BytesAreTheFormulasWithAllKindsBeyondTheDevice) {
  ZeroFlags flags = small_zero_flags();
  flags.step.options.layout.microbatches = 2;
  using workload::Offload;
  for (const core::DType compute : {core::DType::bf16, core::DType::f32}) {
    for (const Offload place : {Offload::host, Offload::file}) {
      const ZeroRow row{.replicas = 2,
                        .stage = 3,
                        .prefetch = place == Offload::host,
                        .compute = compute,
                        .offload = {place, Offload::host, place}};
      ZeroResult result = run_zero(flags, row);
      EXPECT_EQ(result.wrong(), "") << core::short_name_of(compute);
      EXPECT_EQ(parallel::total_of(result.forms.held), 0);
      EXPECT_GT(result.offloaded_bytes(), 0);
      ++result.offloaded[1];
      EXPECT_NE(result.wrong().find("gradients offloaded"), std::string::npos);
    }
  }
}

// ZeRO++: weights as codes, a secondary copy of them, gradients as codes in one hop and in two.
TEST(ZeroRun, BytesAreTheFormulasWithAllOfZeroPlusPlus) {
  ZeroFlags flags = small_zero_flags();
  flags.step.options.layout.microbatches = 2;
  ZeroRow row{.replicas = 4, .stage = 3, .compute = core::DType::bf16};
  row.secondary_ranks = 2;
  const ZeroResult secondary = run_zero(flags, row);
  EXPECT_EQ(secondary.wrong(), "");
  row.weight_compression = workload::CompressionWay::int8;
  row.compression = workload::CompressionWay::int4;
  for (const int near_ranks : {0, 2}) {
    row.near_ranks = near_ranks;
    const ZeroResult result = run_zero(flags, row);
    EXPECT_EQ(result.wrong(), "") << near_ranks;
    EXPECT_EQ(result.sent.secondary, secondary.sent.secondary) << "neighbours get weights as they are";
    EXPECT_LT(result.sent.weights, 0.6 * secondary.sent.weights);
    EXPECT_LT(result.sent.gradients, 0.2 * secondary.sent.gradients);
    EXPECT_EQ(result.sent.near > 0, near_ranks > 0);
  }
}

TEST(ZeroFlags, StagesOneToThreeHaveARowForEachSetOfShards) {
  ZeroFlags flags;
  flags.step.replicas = {4};
  flags.shard_ranks = {0, 2};
  flags.prefetch = {true};
  flags.compute = {core::DType::f32};
  std::vector<int> shards;
  for (const ZeroRow& row : zero_rows(flags)) shards.push_back(row.shards());
  EXPECT_EQ(shards, (std::vector<int>{4, 4, 2, 4, 2, 4, 2}));
  EXPECT_THROW(options_of(flags, {.replicas = 4, .stage = 3, .shard_ranks = 3}), core::Error);
  EXPECT_THROW(options_of(flags, {.replicas = 4, .stage = 3, .shard_ranks = 1}), core::Error);
}

TEST(ZeroRun, ADifferenceIsToldAndShown) {
  ZeroResult result = run_zero(small_zero_flags(), {.replicas = 2, .stage = 1});
  ASSERT_EQ(result.wrong(), "");
  result.held[static_cast<std::size_t>(MemoryKind::optimizer)] += 4;
  result.sent.gradients *= 2;
  result.sent.replicas += 1;
  const std::string wrong = result.wrong();
  EXPECT_NE(wrong.find("optimizer"), std::string::npos);
  EXPECT_NE(wrong.find("gradients sent"), std::string::npos);
  EXPECT_NE(wrong.find("over replicas"), std::string::npos);
  EXPECT_EQ(wrong.find("weights"), std::string::npos);
  EXPECT_NE(zero_row_text({.replicas = 2, .stage = 1}, result).find("wrong"), std::string::npos);
}

TEST(ZeroText, ThePapersTable) {
  const std::string text = zero_heading_text(small_zero_flags());
  EXPECT_NE(text.find("stage 0: 120 GB, stage 1: 31.41 GB, stage 2: 16.64 GB, stage 3: 1.875 GB"), std::string::npos);
}

}  // namespace

}  // namespace lockstep::parallel_bench
