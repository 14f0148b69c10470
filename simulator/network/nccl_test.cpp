// The choices of NCCL's tuner, and their times.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "simulator/network/collective_time.h"
#include "simulator/network/nccl_tuner.h"
#include "testing/core/thrown.h"

namespace lockstep::simulator {
namespace {

using schedules::Comm;
using Algorithm = CollectiveAlgorithm;

constexpr double kMiB = 1024 * 1024;

// The members of a group with the given GPUs per node and nodes.
std::vector<std::int64_t> spread(std::int64_t gpus, std::int64_t nodes) {
  return {gpus, gpus * nodes};
}

double latency(const char* machine, Algorithm algorithm, Protocol protocol, std::int64_t nodes) {
  const NcclCall call = nccl_call(Comm::all_reduce, 8, spread(8, nodes));
  return nccl_latency_us(*load_machine(machine).nccl, call, {algorithm, protocol});
}

std::string chosen(const char* machine, Comm comm, double bytes, const std::vector<std::int64_t>& members) {
  return way_of(best_collective(load_machine(machine), comm, bytes, members));
}

// Computed by hand from the constants of NCCL 2.30.7's src/graph/tuning.cc.
TEST(NcclLatency, IsThatOfItsTuner) {
  EXPECT_NEAR(latency("dgx-h100", Algorithm::ring, Protocol::ll, 1), 15.0, 1e-9);
  EXPECT_NEAR(latency("dgx-h100", Algorithm::tree, Protocol::ll, 1), 15.2, 1e-9);
  EXPECT_NEAR(latency("dgx-h100", Algorithm::ring, Protocol::simple, 1), 8.4 + 14 * 3.4, 1e-9);
  EXPECT_NEAR(latency("dgx-h100", Algorithm::ring, Protocol::ll, 8), 156.4, 1e-9);
  EXPECT_NEAR(latency("dgx-h100", Algorithm::tree, Protocol::ll, 8), 45.2, 1e-9);
  EXPECT_NEAR(latency("dgx-h100", Algorithm::nvls_tree, Protocol::simple, 4), 25 + 4 * 20.9, 1e-9);
}

TEST(NcclChoice, RisesFromLlToSimpleWithTheSize) {
  EXPECT_EQ(chosen("dgx-a100", Comm::all_reduce, 1024, spread(8, 1)), "ring ll");
  EXPECT_EQ(chosen("dgx-a100", Comm::all_reduce, 8 * kMiB, spread(8, 1)), "ring ll128");
  EXPECT_EQ(chosen("dgx-a100", Comm::all_reduce, 256 * kMiB, spread(8, 1)), "ring simple");
  EXPECT_EQ(chosen("dgx1-v100", Comm::all_reduce, 8 * kMiB, spread(8, 1)), "ring ll128");
  EXPECT_EQ(chosen("dgx1-v100", Comm::all_reduce, 16 * kMiB, spread(8, 1)), "ring simple");
}

// nccl-tests issue 309: LL up to 1 MB and NVLS from 2 MB on 8 H100. Two GPUs have no NVLS.
TEST(NcclChoice, TakesNvlsOnHopper) {
  EXPECT_EQ(chosen("dgx-h100", Comm::all_reduce, 8192, spread(8, 1)), "ring ll");
  EXPECT_EQ(chosen("dgx-h100", Comm::all_reduce, 2 * kMiB, spread(8, 1)), "nvls simple");
  EXPECT_EQ(chosen("dgx-h100", Comm::all_reduce, 1024 * kMiB, spread(8, 1)), "nvls simple");
  EXPECT_EQ(chosen("dgx-h100", Comm::all_reduce, 1024 * kMiB, spread(2, 1)), "ring simple");
  EXPECT_EQ(chosen("dgx-h100", Comm::all_reduce, 1024 * kMiB, spread(8, 2)), "nvls_tree simple");
}

// Copies of 1/8 to 7 others at 0.832 of 450 GB/s, and two flags of 3 us after 6.15 us.
TEST(ZeroCta, CopyEnginesMoveWhatNobodySumsWithinANode) {
  const Machine machine = load_machine("dgx-h100");
  const auto way = [&](Comm comm, std::int64_t gpus, std::int64_t nodes) {
    return way_of(best_collective(machine, comm, 1e9, spread(gpus, nodes), true));
  };
  EXPECT_EQ(way(Comm::all_gather, 8, 1), "copy_engine");
  EXPECT_EQ(way(Comm::all_to_all, 4, 1), "copy_engine");
  EXPECT_EQ(way(Comm::reduce_scatter, 8, 1), chosen("dgx-h100", Comm::reduce_scatter, 1e9, spread(8, 1)));
  EXPECT_EQ(way(Comm::broadcast, 8, 1), chosen("dgx-h100", Comm::broadcast, 1e9, spread(8, 1)));
  EXPECT_EQ(way(Comm::all_gather, 8, 2), chosen("dgx-h100", Comm::all_gather, 1e9, spread(8, 2)));
  const CollectivePrediction copied = best_collective(machine, Comm::all_gather, 1e9, spread(8, 1), true);
  EXPECT_NEAR(copied.time_us(), 6.15 + 2 * 3 + 7.0 / 8 * 1e9 / (450e3 * 0.832), 1e-6);
  EXPECT_EQ(copied.taken, 0);
  EXPECT_NEAR(best_collective(machine, Comm::all_gather, 1e9, spread(8, 1)).taken, 16.0 / 132, 1e-12);
}

TEST(NcclChoice, TakesTreesOverNodesAndRingsForTheRest) {
  EXPECT_EQ(chosen("dgx-a100", Comm::all_reduce, 8, spread(8, 128)), "tree ll");
  EXPECT_EQ(chosen("dgx-a100", Comm::all_reduce, 1024 * kMiB, spread(8, 4)).substr(0, 4), "ring");
  EXPECT_EQ(chosen("dgx-a100", Comm::all_gather, 8, spread(8, 128)).substr(0, 4), "ring");
  EXPECT_EQ(chosen("dgx-a100", Comm::all_gather, 4 * kMiB, spread(1, 128)), "pat simple") << "one rank of each node";
  EXPECT_EQ(chosen("dgx-a100", Comm::all_to_all, 8, spread(8, 2)), "exchange simple");
}

TEST(NcclChoice, HasNoLl128OverPcie) {
  Machine machine = load_machine("dgx-a100");
  machine.nccl->inside = NodeLink::pcie;
  for (const NcclWay& way : nccl_ways(*machine.nccl, nccl_call(Comm::all_reduce, 1, spread(8, 1)))) {
    EXPECT_NE(way.protocol, Protocol::ll128);
  }
}

TEST(NcclTime, OfLargeMessagesIsThatOfTheWire) {
  constexpr double kBytes = 1e12;
  const auto us = [&](const char* name, std::int64_t gpus, const NcclWay& way) {
    const Machine machine = load_machine(name);
    const auto members = spread(gpus, 1);
    return nccl_time(machine, nccl_call(Comm::all_reduce, kBytes, members), members, way).time_us();
  };
  const double a100 = 1.75 * kBytes / 240e3 * (1 + 0.59 / 14);  // 14 parts on the wire, one copied out of the buffer
  EXPECT_NEAR(us("dgx-a100", 8, {Algorithm::ring}), a100, 1e-3 * a100);
  const double one_link = kBytes / (150e3 * 0.905 * 0.167);
  EXPECT_NEAR(us("dgx1-v100", 2, {Algorithm::ring}), one_link, 1e-3 * one_link);
  const double nvls = (1 + 1.0 / 8) * kBytes / (450e3 * 0.685);
  EXPECT_NEAR(us("dgx-h100", 8, {Algorithm::nvls}), nvls, 1e-3 * nvls);
}

TEST(NcclTime, OverNodesIsThatOfTheirPorts) {
  constexpr double kBytes = 1e12;
  Machine machine = load_machine("dgx-a100");
  const auto us = [&](const std::vector<std::int64_t>& members, const NcclWay& way) {
    return nccl_time(machine, nccl_call(Comm::all_reduce, kBytes, members), members, way).time_us();
  };
  constexpr double kPort = 25e3 * 0.96;
  EXPECT_NEAR(us(spread(1, 2), {Algorithm::ring}) / (kBytes / kPort), 1, 1e-3) << "one port, half the bytes twice";
  EXPECT_NEAR(us(spread(8, 2), {Algorithm::ring}) / (2 * 15.0 / 16 * kBytes / (8 * kPort)), 1, 0.02);
  // Trees exchange S between two nodes: less than the 15/8 S of a ring over 16 ranks (nccl issue 812), which matters
  // for slow ports.
  machine.levels[1].gbps = 12.5;
  EXPECT_LT(us(spread(8, 2), {Algorithm::tree}), us(spread(8, 2), {Algorithm::ring}));
}

// The last chunk's writes: 64 KiB of 16 channels and 8 heads below 1 GiB, twice as much from there.
TEST(NcclTime, OfNvlsHasALastChunk) {
  const Machine machine = load_machine("dgx-h100");
  const auto us = [&](double bytes) {
    const auto members = spread(8, 1);
    return nccl_time(machine, nccl_call(Comm::all_reduce, bytes, members), members, {Algorithm::nvls}).transfer_us;
  };
  constexpr double kRate = 450e3 * 0.685 / (1 + 1.0 / 8);
  EXPECT_NEAR(us(512 * kMiB), (512 + 8) * kMiB / kRate, 1e-6);
  EXPECT_NEAR(us(1024 * kMiB), (1024 + 16) * kMiB / kRate, 1e-6);
  EXPECT_NEAR(us(1 * kMiB), 2 * kMiB / kRate, 1e-6) << "one chunk";
}

TEST(NcclTime, OfNvlsTreesIsThatOfTheirHeadsAndOfOneChunkOnItsWay) {
  const Machine machine = load_machine("dgx-h100");
  const auto us = [&](double bytes) {
    const auto members = spread(8, 2);
    return nccl_time(machine, nccl_call(Comm::all_reduce, bytes, members), members, {Algorithm::nvls_tree}).transfer_us;
  };
  const double of_heads = 2 * 15.0 / 16 / (8 * 57.7e3);
  EXPECT_NEAR(us(1e12) / (of_heads * 1e12), 1, 1e-3);
  EXPECT_GT(us(100 * kMiB), of_heads * 100 * kMiB + 16 * kMiB / (8 * 48e3)) << "up and down the tree";
}

TEST(NcclTime, OfAllToAllOverPcieIsThatOfItsSteps) {
  Machine machine = load_machine("dgx-a100");
  const auto us = [&] { return nccl_all_to_all(machine, 8, spread(8, 1)).latency_us; };
  const double over_nvlink = us();
  machine.nccl->inside = NodeLink::pcie;
  EXPECT_NEAR(us() - over_nvlink, 5.7 - 3.4, 1e-9);
}

TEST(NcclTime, GrowsWithUpperSwitchesOfTheNetwork) {
  const Machine machine = load_machine("selene");
  const std::vector<std::int64_t> near{1, 16, 16};
  const std::vector<std::int64_t> far{1, 1, 16};
  const auto us = [&](const std::vector<std::int64_t>& members) {
    return nccl_time(machine, nccl_call(Comm::all_gather, 8, members), members, {Algorithm::ring}).time_us();
  };
  EXPECT_NEAR(us(far) - us(near), 15 * (7 - 5), 1e-6) << "15 steps through spines instead of leaves";
}

TEST(NcclFit, FindsTheNumbersThatMadeThePoints) {
  Machine truth = load_machine("dgx-a100");
  truth.nccl->start_us = 11;
  truth.nccl->simple_step_us = 3;
  truth.levels[0].collective_efficiency = 0.7;
  std::vector<CollectivePoint> points;
  for (double bytes = kMiB; bytes <= 1024 * kMiB; bytes *= 4) {
    points.push_back({Comm::all_reduce, 8, bytes, 0});
    points.back().us = predicted_us(truth, points.back());
  }
  const std::array numbers{NcclNumber::start_us, NcclNumber::simple_step_us, NcclNumber::collective_efficiency};
  const Machine found = fit_nccl(load_machine("dgx-a100"), points, numbers);
  for (const NcclNumber number : numbers) {
    EXPECT_NEAR(value_of(found, number) / value_of(truth, number), 1, 0.02)
        << kNcclNumbers[static_cast<std::size_t>(number)];
  }
}

std::vector<RowLine> rows_of(const Machine& machine, int ranks) {
  std::vector<RowLine> rows;
  for (double bytes = 1024; bytes <= 1024 * kMiB; bytes *= 16) {
    rows.push_back({.collective = "all_reduce", .algorithm = "library", .ranks = ranks, .bytes = bytes});
    rows.back().time_us = predicted_us(machine, {Comm::all_reduce, ranks, bytes, 0});
  }
  return rows;
}

TEST(NcclFit, MakesAMachineOfSweepsThatTakesAsLong) {
  Machine truth = load_machine("dgx-h100");
  truth.nccl->start_us = 9;
  truth.nccl->nvls = 0.6;
  const std::vector<RowLine> rows = rows_of(truth, 8);
  const Machine found = calibrate_nccl(load_machine("dgx-h100"), rows, "sweep.jsonl");
  for (const RowLine& row : rows) {
    EXPECT_NEAR(predicted_us(found, {Comm::all_reduce, row.ranks, row.bytes, 0}) / row.time_us, 1, 0.02);
  }
  EXPECT_TRUE(core::has(found.sources.back(), "sweep.jsonl: start_us, collective_efficiency, nvls fitted to 6 rows"));
  EXPECT_EQ(to_json(parse_machine(to_json(found), "found")), to_json(found));
}

TEST(NcclFit, RefusesWhatTellsTooLittle) {
  const auto refusal = [](const Machine& base, const std::vector<RowLine>& rows) {
    return core::refusal_of([&] { calibrate_nccl(base, rows, "sweep.jsonl"); });
  };
  const Machine base = load_machine("dgx-a100");
  EXPECT_TRUE(core::has(refusal(base, {}), "sweep.jsonl: rows of NCCL's collectives at 0 sizes"));
  EXPECT_NE(refusal(base, rows_of(base, 16)), "") << "more than a node";
  Machine without = base;
  without.nccl.reset();
  EXPECT_TRUE(core::has(refusal(without, rows_of(base, 8)), "has no NCCL"));
}

}  // namespace
}  // namespace lockstep::simulator
