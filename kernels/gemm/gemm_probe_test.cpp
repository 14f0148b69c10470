#include "kernels/gemm/gemm_probe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace lockstep::kernels {
namespace {

const std::vector<std::string> kNames{"amx", "packed", "onednn"};

// Implementations of given speeds: seconds of each of their rounds; the last value repeats.
class Fake {
 public:
  explicit Fake(std::map<std::string, std::vector<double>> seconds) : seconds_(std::move(seconds)) {}

  std::vector<GemmTime> times() {
    return time_in_turn(kNames, [this](std::size_t i) {
      const std::vector<double>& rounds = seconds_.at(kNames[i]);
      const std::size_t round = runs_[kNames[i]]++;
      order_ += kNames[i].front();
      return rounds[std::min(round, rounds.size() - 1)];
    });
  }
  std::size_t runs(const std::string& name) const { return runs_.at(name); }
  const std::string& order() const { return order_; }

 private:
  std::map<std::string, std::vector<double>> seconds_;
  std::map<std::string, std::size_t> runs_;
  std::string order_;
};

std::string chosen(double amx, double packed, double onednn) {
  return fastest_gemm(Fake({{"amx", {amx}}, {"packed", {packed}}, {"onednn", {onednn}}}).times());
}

TEST(GemmProbe, TheFastestIsChosen) {
  EXPECT_EQ(chosen(0.001, 0.002, 0.002), "amx");
  EXPECT_EQ(chosen(0.003, 0.002, 0.0025), "packed");  // AMX while another program on the core uses it
  EXPECT_EQ(chosen(0.003, 0.002, 0.001), "onednn");
}

TEST(GemmProbe, OfThoseThatAreAsFastTheFirstIsChosen) {
  EXPECT_EQ(chosen(0.001, 0.001, 0.001), "amx");
  EXPECT_EQ(chosen(0.00104, 0.001, 0.00102), "amx");
  EXPECT_EQ(chosen(0.00106, 0.00104, 0.001), "packed");
  EXPECT_EQ(chosen(0.00106, 0.00106, 0.001), "onednn");
}

TEST(GemmProbe, RoundsThatOtherProgramsDisturbDecideNothing) {
  Fake fake({{"amx", {0.001, 0.1, 0.05, 0.001, 0.06}}, {"packed", {0.002}}, {"onednn", {0.002}}});
  const std::vector<GemmTime> times = fake.times();
  EXPECT_EQ(fastest_gemm(times), "amx");
  EXPECT_EQ(times[0].seconds, 0.001);
}

TEST(GemmProbe, TheWarmUpDoesNotCount) {
  Fake fake({{"amx", {0.003, 0.001}}, {"packed", {0.002}}, {"onednn", {0.002}}});
  EXPECT_EQ(fastest_gemm(fake.times()), "amx");
}

TEST(GemmProbe, RoundsAreTakenInTurn) {
  Fake fake({{"amx", {0.01}}, {"packed", {0.01}}, {"onednn", {0.01}}});
  fake.times();
  EXPECT_EQ(fake.order(), "apoapoapoapoapoapo");  // a warm-up and the minimum number of rounds
}

TEST(GemmProbe, TheHopelessIsRunOnce) {
  Fake fake({{"amx", {0.001}}, {"packed", {0.002}}, {"onednn", {1}}});
  const std::vector<GemmTime> times = fake.times();
  EXPECT_EQ(fake.runs("onednn"), 1U);
  EXPECT_TRUE(std::isinf(times[2].seconds));
}

// Rounds take 40 ms in total, and there are at most 15.
TEST(GemmProbe, TimeIsBounded) {
  Fake some({{"amx", {0.002}}, {"packed", {0.002}}, {"onednn", {0.002}}});
  some.times();
  EXPECT_EQ(some.runs("amx"), 1U + 7U);
  Fake short_ones({{"amx", {1e-6}}, {"packed", {1e-6}}, {"onednn", {1e-6}}});
  short_ones.times();
  EXPECT_EQ(short_ones.runs("amx"), 1U + 15U);
}

TEST(GemmProbe, AllThatAreHereAreTimed) {
  for (const core::DType dtype : {core::DType::f32, core::DType::bf16, core::DType::f16}) {
    std::vector<std::string> timed;
    for (const GemmTime& time : probe_gemms(gemm_implementations(dtype), dtype, 2)) timed.push_back(time.name);
    EXPECT_EQ(timed, gemm_implementations(dtype));
    EXPECT_NE(std::find(timed.begin(), timed.end(), "packed"), timed.end());
  }
  EXPECT_EQ(gemm_implementations(core::DType::f16), std::vector<std::string>{"packed"});
}

}  // namespace
}  // namespace lockstep::kernels
