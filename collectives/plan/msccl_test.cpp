#include "collectives/plan/text.h"

#include <random>

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "collectives/plan/check.h"
#include "collectives/plan/cost.h"
#include "core/error.h"
#include "testing/core/thrown.h"
#include "testing/plans/plans.h"

namespace lockstep::plan {
namespace {

using collectives::Kind;

std::string complaint(const std::string& text) {
  std::string problems;
  const std::string refusal = core::refusal_of([&] {
    problems = check(parse_any_plan(text, "f.xml"), {kUnbounded, false}).text();
  });
  return refusal.empty() ? problems : refusal;
}

std::string is_right(const Plan& plan, bool in_place) {
  return check(plan, {kUnbounded, in_place}).text();
}

// Text of a file, element by element.
class File {
 public:
  File(const std::string& coll, int gpus, int chunks, const std::string& more = "inplace=\"0\"") {
    text_ = fmt::format("<algo name=\"test\" proto=\"LL\" nchunksperloop=\"{}\" ngpus=\"{}\" coll=\"{}\" {}>\n", chunks,
                        gpus, coll, more);
  }
  File& gpu(int scratch = 0) {
    end_gpu();
    text_ += fmt::format(" <gpu id=\"{}\" i_chunks=\"0\" o_chunks=\"0\" s_chunks=\"{}\">\n", gpu_++, scratch);
    tb_ = 0;
    return *this;
  }
  File& tb(int send, int recv, int channel = 0) {
    end_tb();
    text_ += fmt::format("  <tb id=\"{}\" send=\"{}\" recv=\"{}\" chan=\"{}\">\n", tb_++, send, recv, channel);
    step_ = 0;
    return *this;
  }
  // `src` and `dst` as "i3"; waits for a step of a thread block.
  File& step(const std::string& type, const std::string& src, const std::string& dst, int count = 1, After after = {}) {
    text_ +=
        fmt::format("   <step s=\"{}\" type=\"{}\" srcbuf=\"{}\" srcoff=\"{}\" dstbuf=\"{}\" dstoff=\"{}\" cnt=\"{}\" ",
                    step_++, type, src[0], src.substr(1), dst[0], dst.substr(1), count);
    text_ += fmt::format("depid=\"{}\" deps=\"{}\" hasdep=\"1\"/>\n", after.lane, after.step);
    return *this;
  }
  File& nop(After after) { return step("nop", "i-1", "o-1", 0, after); }
  std::string text() {
    end_gpu();
    return text_ + "</algo>\n";
  }

 private:
  void end_tb() {
    if (tb_ > 0) text_ += "  </tb>\n";
  }
  void end_gpu() {
    end_tb();
    if (gpu_ > 0) text_ += " </gpu>\n";
    tb_ = 0;
  }
  std::string text_;
  int gpu_ = 0;
  int tb_ = 0;
  int step_ = 0;
};

// All-pairs all-reduce as msccl-tools makes it: in place; each rank sends each other its part, one thread block and
// channel-sharing connection per peer; a thread block without peers adds them up once all have come (nop); then each
// sends its sum to all.
std::string all_pairs(int n, int channels) {
  File file("allreduce", n, n * channels, "inplace=\"1\" outofplace=\"0\"");
  for (int r = 0; r < n; ++r) {
    file.gpu((n - 1) * channels);
    for (int c = 0; c < channels; ++c) {
      const int first = c * n;  // thread blocks of the channel: one that adds, then one per peer
      file.tb(-1, -1, c);
      for (int k = 2; k < n; ++k) file.nop({first + k, 1});
      for (int k = 1; k < n; ++k) {
        file.step("re", fmt::format("s{}", (k - 1) * channels + c), fmt::format("i{}", r * channels + c), 1,
                  k == 1 ? After{first + 1, 1} : After{});
      }
      for (int k = 1; k < n; ++k) {
        const int peer = (r + k) % n;
        const int slot = (n - k - 1) * channels + c;  // at the peer, which numbers its peers from itself
        file.tb(peer, peer, c);
        file.step("s", fmt::format("i{}", peer * channels + c), fmt::format("s{}", slot));
        file.step("r", "i0", fmt::format("s{}", (k - 1) * channels + c));
        file.step("s", fmt::format("i{}", r * channels + c), fmt::format("i{}", r * channels + c), 1,
                  {first, 2 * n - 4});
        file.step("r", "i0", fmt::format("i{}", peer * channels + c));
      }
    }
  }
  return file.text();
}

// Ring reduce-scatter in place: sums pass through without being stored (rrs), the last one is.
std::string ring_reduce_scatter(int n) {
  File file("reducescatter", n, n, "inplace=\"1\"");
  for (int r = 0; r < n; ++r) {
    const auto chunk = [&](int s) { return fmt::format("i{}", (r - s + 2 * n) % n); };
    file.gpu().tb((r + 1) % n, (r + n - 1) % n).step("s", chunk(1), chunk(1));
    for (int s = 2; s < n; ++s) file.step("rrs", chunk(s), chunk(s));
    file.step("rrc", chunk(n), chunk(n));
  }
  return file.text();
}

// All-gather of 2 hosts of 2 ranks: to the same place of the other host, then to the neighbour what came (rcs).
std::string hierarchical_all_gather() {
  File file("allgather", 4, 4);
  for (int r = 0; r < 4; ++r) {
    const int across = r ^ 2;
    const int next = r ^ 1;
    const auto o = [](int chunk) { return fmt::format("o{}", chunk); };
    file.gpu();
    file.tb(next, across, 0).step("rcs", "i0", o(across));
    file.tb(across, -1, 0).step("s", "i0", o(r)).step("cpy", "i0", o(r));
    file.tb(-1, next, 0).step("r", o(next ^ 2), o(next ^ 2));
    file.tb(next, next, 1).step("s", "i0", o(r)).step("r", "i0", o(next));
  }
  return file.text();
}

std::string all_to_all(int n) {
  File file("alltoall", n, 2 * n);
  for (int r = 0; r < n; ++r) {
    file.gpu().tb(-1, -1).step("cpy", fmt::format("i{}", 2 * r), fmt::format("o{}", 2 * r), 2);
    for (int k = 1; k < n; ++k) {
      const int to = (r + k) % n;
      const int from = (r + n - k) % n;
      file.tb(to, from).step("s", fmt::format("i{}", 2 * to), fmt::format("o{}", 2 * r), 2);
      file.step("r", "i0", fmt::format("o{}", 2 * from), 2);
    }
  }
  return file.text();
}

TEST(Msccl, AlgorithmsInTheFormOfMscclToolsAreRight) {
  for (int n = 2; n <= 9; ++n) {
    for (const bool in_place : {false, true}) {
      for (const int channels : {1, 3}) {
        const Plan pairs = parse_msccl(all_pairs(n, channels));
        EXPECT_EQ(is_right(pairs, in_place), "ok") << n << to_text(pairs);
        EXPECT_EQ(num_lanes(pairs), channels);
      }
      EXPECT_EQ(is_right(parse_msccl(ring_reduce_scatter(n)), in_place), "ok") << n;
    }
    EXPECT_EQ(is_right(parse_msccl(all_to_all(n)), false), "ok") << n;
  }
  EXPECT_EQ(is_right(parse_msccl(hierarchical_all_gather()), false), "ok");
}

TEST(Msccl, CountsAreThoseOfTheAlgorithm) {
  const Plan pairs = parse_msccl(all_pairs(4, 1));
  collectives::Operation operation;
  operation.count = 4;
  const Counts counts = count(pairs, contents_of(pairs, {kUnbounded, false}), operation);
  EXPECT_EQ(counts.steps, 2);  // scatter the parts, gather the sums
}

// Each type of step, where input and output are separate.
TEST(Msccl, TypesOfSteps) {
  File file("allreduce", 2, 3);
  file.gpu(5).tb(1, 1);
  file.step("s", "i0", "s4").step("r", "i0", "s1").step("rcs", "i0", "s0", 2).step("rrc", "i1", "o0");
  file.step("rrs", "i2", "o2").step("rrcs", "i1", "o1").step("cpy", "i0", "o2").step("re", "s1", "o2");
  file.gpu(5).tb(0, 0);
  file.step("s", "i0", "s4").step("s", "i1", "i0", 2).step("s", "i0", "i0").step("s", "i0", "i0").step("s", "i0", "i0");
  StepLines lines;
  const Plan plan = parse_msccl(file.text(), "f.xml", &lines);
  EXPECT_EQ(to_text(plan).substr(0, to_text(plan).find("rank 1")),
            "plan all_reduce test ranks=2 root=0 chunks=3 scratch=6\n"
            "rank 0 lane 0\n"
            "  send input[0] -> 1\n"
            "  recv scratch[1] <- 1\n"
            "  recv scratch[0..1] <- 1\n"
            "  send scratch[0..1] -> 1\n"
            "  recv_reduce output[0] <- 1 + input[1]\n"
            "  recv_reduce scratch[5] <- 1 + input[2]\n"
            "  send scratch[5] -> 1\n"
            "  recv_reduce output[1] <- 1 + input[1]\n"
            "  send output[1] -> 1\n"
            "  copy output[2] <- input[0]\n"
            "  reduce output[2] += scratch[1]\n");
  EXPECT_EQ(lines[0][0], (std::vector<int>{4, 5, 6, 6, 7, 8, 8, 9, 9, 10, 11}));
}

TEST(Msccl, ChannelsBecomeLanesAndWaitsBetweenThemStay) {
  File file("allgather", 2, 2);
  for (const int r : {0, 1}) {
    const std::string own = fmt::format("o{}", r);
    const std::string other = fmt::format("o{}", 1 - r);
    file.gpu(3);
    file.tb(1 - r, -1, 4).step("s", "i0", "s0").step("cpy", "i0", own);
    file.tb(-1, 1 - r, 4).step("r", "i0", "s0");
    file.tb(-1, -1, 7).step("cpy", "i0", "s1").step("cpy", "i0", "s2");
    file.tb(-1, -1, 9).nop({1, 0}).nop({0, 1}).step("cpy", "s0", other, 1, {2, 1}).step("cpy", "s2", "s1");
  }
  const Plan plan = parse_msccl(file.text());
  EXPECT_EQ(num_lanes(plan), 3);
  EXPECT_EQ(to_text(plan.ranks[0].lanes[2][0]), "copy output[1] <- scratch[0] after 0.2, 1.1");
  EXPECT_EQ(to_text(plan.ranks[0].lanes[2][1]), "copy scratch[1] <- scratch[2]");
  EXPECT_EQ(is_right(plan, false), "ok");
}

// A chunk of an input that is also the output is read there until it is written, then from the output.
TEST(Msccl, InPlaceTheInputIsReadUntilItIsWritten) {
  File ring("allreduce", 2, 2, "inplace=\"1\"");
  for (const int r : {0, 1}) {
    const std::string mine = fmt::format("i{}", r);
    const std::string other = fmt::format("i{}", 1 - r);
    ring.gpu().tb(1 - r, 1 - r).step("s", other, other).step("rrcs", mine, mine).step("r", other, other);
  }
  EXPECT_EQ(to_text(parse_msccl(ring.text()).ranks[0].lanes[0][1]), "recv_reduce output[0] <- 1 + input[0]");
  // Rank 0 adds to what it has not written, and sends a slice of which one chunk is written.
  File file("allreduce", 2, 2, "inplace=\"1\"");
  file.gpu(2).tb(1, 1).step("r", "i0", "s0", 2).step("re", "s0", "i0").step("s", "i0", "s0", 2).step("re", "s1", "i1");
  file.gpu(2).tb(0, 0).step("s", "i0", "s0", 2).step("r", "i0", "s0", 2).step("cpy", "s0", "i0").step("re", "s1", "i1");
  const Plan plan = parse_msccl(file.text());
  EXPECT_EQ(to_text(plan),
            "plan all_reduce test ranks=2 root=0 chunks=2 scratch=2\n"
            "rank 0 lane 0\n"
            "  recv scratch[0..1] <- 1\n"
            "  copy output[0] <- input[0]\n"
            "  reduce output[0] += scratch[0]\n"
            "  copy output[1] <- input[1]\n"
            "  send output[0..1] -> 1\n"
            "  reduce output[1] += scratch[1]\n"
            "rank 1 lane 0\n"
            "  send input[0..1] -> 0\n"
            "  recv scratch[0..1] <- 0\n"
            "  copy output[0] <- scratch[0]\n"
            "  copy output[1] <- input[1]\n"
            "  reduce output[1] += scratch[1]\n");
  EXPECT_EQ(is_right(plan, false), "ok");
  EXPECT_EQ(is_right(plan, true), "ok");
}

// In place such a copy writes what is there already, but it is a write, which must be ordered with reads of other
// lanes.
TEST(Msccl, InPlaceCopiesAreOrderedWithReadsOfOtherLanes) {
  File file("allreduce", 1, 2, "inplace=\"1\"");
  file.gpu(4).tb(-1, -1, 0);
  for (int turn = 0; turn < 4; ++turn) file.step("cpy", "i1", "s0");
  file.tb(-1, -1, 1).step("cpy", "i0", "s2").step("cpy", "s2", "i0").step("cpy", "i0", "s2", 2);
  const Plan plan = parse_msccl(file.text());
  EXPECT_EQ(to_text(plan),
            "plan all_reduce test ranks=1 root=0 chunks=2 scratch=4\n"
            "rank 0 lane 0\n"
            "  copy scratch[0] <- input[1]\n"
            "  copy scratch[0] <- input[1]\n"
            "  copy scratch[0] <- input[1]\n"
            "  copy scratch[0] <- output[1] after 1.2\n"
            "rank 0 lane 1\n"
            "  copy scratch[2] <- input[0]\n"
            "  copy output[0] <- scratch[2]\n"
            "  copy output[1] <- input[1] after 0.2\n"
            "  copy scratch[2..3] <- output[0..1]\n");
  EXPECT_EQ(is_right(plan, false), "ok");
  EXPECT_EQ(is_right(plan, true), "ok");
}

TEST(Msccl, InPlaceWhatTheOutputLacksIsCopiedAtTheEnd) {
  File gather("allgather", 2, 2, "inplace=\"1\"");  // the own block stands where it belongs
  for (const int r : {0, 1}) {
    const std::string own = fmt::format("o{}", r);
    gather.gpu().tb(1 - r, 1 - r).step("s", own, own).step("r", "o0", fmt::format("o{}", 1 - r));
  }
  const Plan gathers = parse_msccl(gather.text());
  EXPECT_EQ(to_text(gathers.ranks[1].lanes[0][2]), "copy output[1] <- input[0]");
  File scatter("reduce_scatter", 2, 2, "inplace=\"1\"");  // the sum is in the input
  for (const int r : {0, 1}) {
    scatter.gpu().tb(1 - r, 1 - r);
    scatter.step("s", fmt::format("i{}", 1 - r), "i0").step("rrc", fmt::format("i{}", r), fmt::format("i{}", r));
  }
  const Plan scatters = parse_msccl(scatter.text());
  EXPECT_EQ(to_text(scatters.ranks[1].lanes[0][1]), "recv_reduce scratch[1] <- 0 + input[1]");
  EXPECT_EQ(to_text(scatters.ranks[1].lanes[0][2]), "copy output[0] <- scratch[1]");
  for (const bool in_place : {false, true}) {
    EXPECT_EQ(is_right(gathers, in_place), "ok");
    EXPECT_EQ(is_right(scatters, in_place), "ok");
  }
}

TEST(Msccl, RootsNamesAndRanksWithoutSteps) {
  File file("broadcast", 2, 1, "inplace=\"0\" root=\"1\"");
  file.gpu().tb(-1, 1).step("r", "i0", "o0").gpu().tb(0, -1).step("s", "i0", "o0").step("cpy", "i0", "o0");
  std::string text = file.text();
  text.replace(text.find("\"test\""), 6, "'a &quot;b&quot; #1'");
  const Plan plan = parse_any_plan("<?xml version=\"1.0\"?>\n<!-- mine -->\n" + text);
  EXPECT_EQ(plan.root, 1);
  EXPECT_EQ(plan.algorithm, "a_\"b\"__1");
  EXPECT_EQ(is_right(plan, false), "ok");
  EXPECT_EQ(complaint(File("reduce", 1, 1).gpu().text()),
            "rank 0: output[0] ends as nothing, expected chunk 0 summed over all ranks");
}

// Replaces the first `from` in the hierarchical all-gather.
std::string complaint_on(const std::string& from, const std::string& to) {
  std::string text = hierarchical_all_gather();
  EXPECT_TRUE(core::has(text, from)) << from;
  return complaint(text.replace(text.find(from), from.size(), to));
}

TEST(Msccl, WhatCannotBeSaidInAPlanIsRefusedByName) {
  EXPECT_EQ(complaint_on("coll=\"allgather\"", "coll=\"alltoallv\""),
            "f.xml:1: <algo> has coll=\"alltoallv\"; allowed: allreduce, allgather, reducescatter, alltoall, "
            "broadcast, reduce, gather, scatter");
  EXPECT_EQ(complaint_on("proto=\"LL\"", "proto=\"LL256\""),
            "f.xml:1: <algo> has proto=\"LL256\"; allowed: Simple, LL, LL128");
  EXPECT_EQ(complaint_on("proto=\"LL\"", "proto=\"LL\" rate=\"2\"").substr(0, 52),
            "f.xml:1: <algo> has the attribute rate; allowed: nam");
  EXPECT_EQ(complaint_on("ngpus=\"4\"", "ngpus=\"5\""),
            "f.xml:1: <algo> has ngpus=\"5\"; allowed: 4, the number of <gpu>");
  EXPECT_EQ(complaint_on("nchunksperloop=\"4\"", "nchunksperloop=\"6\""),
            "f.xml:1: <algo> has nchunksperloop=\"6\"; allowed: multiples of 4, the number of <gpu>");
  EXPECT_EQ(complaint_on("inplace=\"0\"", "inplace=\"0\" outofplace=\"0\""),
            "f.xml:1: <algo> has outofplace=\"0\"; allowed: 1 if inplace is 0");
  EXPECT_EQ(complaint_on("i_chunks=\"0\"", "i_chunks=\"2\""), "f.xml:2: <gpu> has i_chunks=\"2\"; allowed: 0 to 1");
  EXPECT_EQ(complaint_on("gpu id=\"0\"", "gpu id=\"1\""),
            "f.xml:18: <gpu> has id=\"1\"; allowed: each id from 0 to 3 once");
  EXPECT_EQ(complaint_on("<gpu id=\"0\"", "<note id=\"9\"/> <gpu id=\"0\""), "f.xml:2: found <note>; allowed: <gpu>");
  EXPECT_EQ(complaint_on("tb id=\"0\"", "tb"), "f.xml:3: <tb> has no id; allowed: each id from 0 to 3 once");
  EXPECT_EQ(complaint_on("send=\"1\"", "send=\"4\""), "f.xml:3: <tb> has send=\"4\"; allowed: -1 to 3");
  EXPECT_EQ(complaint_on("s=\"1\"", "s=\"2\""), "f.xml:8: <step> has s=\"2\"; allowed: 1 (steps come in order)");
  EXPECT_EQ(complaint_on("type=\"rcs\"", "type=\"put\""),
            "f.xml:4: <step> has type=\"put\"; allowed: s, r, rcs, rrc, rrs, rrcs, cpy, re, nop");
  EXPECT_EQ(complaint_on("srcbuf=\"i\"", "srcbuf=\"x\""), "f.xml:4: <step> has srcbuf=\"x\"; allowed: i, o, s");
  EXPECT_EQ(complaint_on("cnt=\"1\"", "cnt=\"0\""), "f.xml:4: <step> has cnt=\"0\"; allowed: 1 to 32767");
  EXPECT_EQ(complaint_on("cnt=\"1\"", ""), "f.xml:4: <step> has no cnt; allowed: 1 to 32767");
  EXPECT_EQ(complaint_on("recv=\"2\"", "recv=\"-1\""),
            "f.xml:4: <step> has type=\"rcs\"; allowed: no type that receives, as the tb has recv=\"-1\"");
  EXPECT_EQ(complaint_on("send=\"1\"", "send=\"-1\""),
            "f.xml:4: <step> has type=\"rcs\"; allowed: no type that sends, as the tb has send=\"-1\"");
  EXPECT_EQ(complaint_on("chan=\"1\"", "chan=\"0\""),
            "f.xml:13: gpu 0 has a second tb that sends to rank 1 on channel 0; allowed: one");
  EXPECT_EQ(complaint_on("chan=\"1\"", "chan=\"64\""), "f.xml:13: <tb> has chan=\"64\"; allowed: -1 to 63");
  File large("allgather", 2, 32766);
  for (int r = 0; r < 2; ++r) {
    large.gpu(32767);
    for (int b = 0; b < 500; ++b) large.tb(-1, -1);
  }
  EXPECT_EQ(complaint(large.text()),
            "f.xml:2: the chunks of a gpu times its tb, or those of all gpus, are more than 33554432");
  EXPECT_EQ(complaint_on("<step s=\"0\"", "<op s=\"0\""), "f.xml:4: found <op>; allowed: <step>");
}

TEST(Msccl, WaitsForWhatNeverComesAreRefused) {
  EXPECT_EQ(complaint_on("depid=\"-1\" deps=\"-1\"", "depid=\"4\" deps=\"0\""),
            "f.xml:4: waits (depid, deps) for tb 4 step 0, but the gpu has 4 tb");
  EXPECT_EQ(complaint_on("depid=\"-1\" deps=\"-1\"", "depid=\"1\" deps=\"2\""),
            "f.xml:4: waits (depid, deps) for tb 1 step 2, but the tb has 2 steps");
  EXPECT_EQ(complaint_on("depid=\"-1\" deps=\"-1\"", "depid=\"0\" deps=\"0\""),
            "f.xml:4: waits (depid, deps) for tb 0 step 0, its own tb's later step");
  std::string silent = hierarchical_all_gather();
  const std::string last = "hasdep=\"1\"/>\n  </tb>\n  <tb id=\"3\"";
  silent.replace(silent.find(last), 10, "hasdep=\"0\"");
  silent.replace(silent.find("depid=\"-1\" deps=\"-1\""), 20, "depid=\"2\" deps=\"0\"");
  EXPECT_EQ(complaint(silent),
            "f.xml:4: waits (depid, deps) for tb 2 step 0, and no step there from that one on has hasdep=\"1\": the "
            "runtime would wait forever");
  File cycle("allgather", 1, 1);
  cycle.gpu(1).tb(-1, -1).step("cpy", "i0", "o0", 1, {1, 0}).tb(-1, -1).step("cpy", "i0", "s0", 1, {0, 0});
  EXPECT_EQ(complaint(cycle.text()),
            "f.xml:4: gpu 0 tb 0: copy output[0] <- input[0] after 1.0: deadlock: waits (after) for lane 1 step 0, in "
            "a cycle (a lane is a tb here)");
  EXPECT_EQ(complaint_on("type=\"s\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\"",
                         "type=\"cpy\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\""),
            "f.xml:36: gpu 2 tb 0: recv output[0] <- 0: waits forever for a message from rank 0 on channel 0");
}

TEST(Msccl, RacesAreFoundBetweenThreadBlocksOfOneChannel) {
  File file("allgather", 1, 1);
  file.gpu(1).tb(-1, -1).step("cpy", "i0", "s0").tb(-1, -1).step("cpy", "s0", "o0");
  EXPECT_EQ(
      complaint(file.text()),
      "f.xml:7: gpu 0 tb 1: copy output[0] <- scratch[0]: reads scratch[0], which lane 0 step 0 writes, and no `after` "
      "orders the two (race) (a lane is a tb here)");
  // Only in place are the two chunks the same.
  for (const bool in_place : {false, true}) {
    File two("allreduce", 1, 1, in_place ? "inplace=\"1\" outofplace=\"1\"" : "inplace=\"0\"");
    two.gpu(1).tb(-1, -1).step("cpy", "i0", "o0").tb(-1, -1).step("cpy", "i0", "s0");
    EXPECT_EQ(complaint(two.text()).find("(in place; a lane is a tb here)") != std::string::npos, in_place);
  }
}

TEST(Msccl, WhatThePlanDoesWrongIsTheCheckersToSay) {
  EXPECT_EQ(complaint_on("type=\"cpy\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"o\" dstoff=\"0\"",
                         "type=\"cpy\" srcbuf=\"i\" srcoff=\"0\" dstbuf=\"o\" dstoff=\"1\"")
                    .find("race") != std::string::npos,
            true);
  EXPECT_EQ(
      complaint_on("type=\"r\" srcbuf=\"i\"", "type=\"nop\" srcbuf=\"i\""),
      "rank 1 lane 1 step 0: send input[0] -> 0: no recv at rank 0 in this lane matches it (message 0 of its channel)");
}

TEST(Msccl, BrokenXmlIsRefusedWithLineAndColumn) {
  const std::string allowed =
      "; allowed: one element of XML, with attributes, elements and comments (no text, DOCTYPE, CDATA, <?)";
  const std::pair<std::string, const char*> broken[] = {
      {"<", "1:1: Could not determine tag type at the end of the file"},
      {"<!DOCTYPE a>", "1:11: no element at 'a>'"},
      {"<algo><![CDATA[x]]></algo>", "1:16: no element at 'x]]></algo>'"},
      {"<algo><?x y?></algo>", "1:9: no element at 'x y?></algo>'"},
      {"<algo>\n text</algo>", "2:2: no element at 'text</algo>'"},
      {"<algo/>\ntext", "2:1: no element at 'text'"},
      {"<algo>\n</gpu>", "2:3: Start-end tags mismatch at 'gpu>'"},
      {"<algo>\n", "1:7: Start-end tags mismatch at the end of the file"},
      {"<algo name=test>", "1:12: Error parsing element attribute at 'test>'"},
      {"<!-- a", "1:6: Error parsing comment at the end of the file"},
      {"<algo/>\n<algo/>", "2:8: 2 elements at the end of the file"},
      {std::string("<algo\0/>", 8), "1:6: a byte is 0 at '?/>'"}};
  for (const auto& [text, why] : broken) EXPECT_EQ(complaint(text), std::string("f.xml:") + why + allowed);
  EXPECT_EQ(complaint("<algo a=''\n a=''/>"), "f.xml:1:2: attribute a twice at 'algo a='''; allowed: once");
  std::string deep;
  for (int i = 0; i < 100000; ++i) deep += "<a>";
  EXPECT_EQ(complaint(deep), "f.xml:1:300000: Start-end tags mismatch at the end of the file" + allowed);
  for (int i = 0; i < 100000; ++i) deep += "</a>";
  EXPECT_EQ(complaint(deep).substr(0, 34), "f.xml:1:50: nested elements at 'a>");
  EXPECT_EQ(complaint("<plan/>"), "f.xml:1: found <plan>; allowed: <algo>");
  EXPECT_EQ(complaint("<algo x='&lt;'/>").substr(0, 35), "f.xml:1: <algo> has the attribute x");
}

// An edited file is a plan or is refused with one line (complaint() looks at that).
TEST(Msccl, BrokenFilesAreRefusedWithOneLine) {
  const std::vector<std::string> files{all_pairs(3, 2), ring_reduce_scatter(3), hierarchical_all_gather(),
                                       all_to_all(2), to_msccl(two_lane_plan(3))};
  const std::string pieces[] = {"",  " ",  "\n",          "\"", "<",   "/>", "&", "1",
                                "9", "-1", "99999999999", "s",  "rrs", "re", "o", "</tb>"};
  std::mt19937_64 random(1);
  const auto below = [&random](std::size_t end) { return static_cast<std::size_t>(random() % end); };
  int accepted = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text = files[below(files.size())];
    for (std::size_t edits = 1 + below(3); edits > 0; --edits) {
      text.replace(below(text.size()), below(3), pieces[below(std::size(pieces))]);
    }
    accepted += complaint(text) == "ok" ? 1 : 0;
  }
  EXPECT_GT(accepted, 40);
  EXPECT_LT(accepted, 2000);
}

TEST(Msccl, WrittenText) {
  const std::string text = to_msccl(ring_plan(2));
  EXPECT_EQ(
      text.substr(0, text.find("  <gpu id=\"1\"")),
      R"(<algo name="ring" proto="Simple" nchannels="1" )"
      R"(nchunksperloop="2" ngpus="2" coll="allreduce" inplace="1" outofplace="1" minBytes="0" maxBytes="1099511627776">
  <gpu id="0" i_chunks="2" o_chunks="2" s_chunks="0">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrcs" srcbuf="i" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
)");
}

// One thread block cannot have two peers: lanes are taken apart, and come back together.
TEST(Msccl, WhatIsWrittenIsReadBack) {
  for (int n = 1; n <= 9; ++n) {
    EXPECT_EQ(parse_msccl(to_msccl(ring_plan(n, 2))), ring_plan(n, 2)) << n;
    for (const Plan& plan :
         {chain_plan(n, n / 2, 3), two_lane_plan(n), direct_all_to_all_plan(Kind::all_to_all, n, 2)}) {
      EXPECT_EQ(is_right(parse_msccl(to_msccl(plan)), false), "ok") << to_text(plan);
    }
  }
  EXPECT_EQ(core::refusal_of([] { to_msccl(direct_all_to_all_plan(Kind::all_to_all_v, 2, 1)); }),
            "all_to_all_v has no form in MSCCL XML; allowed: all_reduce, all_gather, reduce_scatter, all_to_all, "
            "broadcast, reduce, gather, scatter, hypercube");
}

}  // namespace
}  // namespace lockstep::plan
