#include "kernels/gemm/gemm_choice.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/gemm/gemm_cuda.h"

namespace lockstep::kernels {
namespace {

const std::vector<std::string> kNames{"a", "b", "c"};

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

std::string chosen(double a, double b, double c) {
  return fastest_gemm(Fake({{"a", {a}}, {"b", {b}}, {"c", {c}}}).times());
}

TEST(GemmProbe, TheFastestIsChosen) {
  EXPECT_EQ(chosen(0.001, 0.002, 0.002), "a");
  EXPECT_EQ(chosen(0.003, 0.002, 0.0025), "b");
  EXPECT_EQ(chosen(0.003, 0.002, 0.001), "c");
}

TEST(GemmProbe, OfThoseThatAreAsFastTheFirstIsChosen) {
  EXPECT_EQ(chosen(0.001, 0.001, 0.001), "a");
  EXPECT_EQ(chosen(0.00104, 0.001, 0.00102), "a");
  EXPECT_EQ(chosen(0.00106, 0.00104, 0.001), "b");
  EXPECT_EQ(chosen(0.00106, 0.00106, 0.001), "c");
}

TEST(GemmProbe, RoundsThatOtherProgramsDisturbDecideNothing) {
  Fake fake({{"a", {0.001, 0.1, 0.05, 0.001, 0.06}}, {"b", {0.002}}, {"c", {0.002}}});
  const std::vector<GemmTime> times = fake.times();
  EXPECT_EQ(fastest_gemm(times), "a");
  EXPECT_EQ(times[0].seconds, 0.001);
}

TEST(GemmProbe, TheWarmUpDoesNotCount) {
  Fake fake({{"a", {0.003, 0.001}}, {"b", {0.002}}, {"c", {0.002}}});
  EXPECT_EQ(fastest_gemm(fake.times()), "a");
}

TEST(GemmProbe, RoundsAreTakenInTurn) {
  Fake fake({{"a", {0.01}}, {"b", {0.01}}, {"c", {0.01}}});
  fake.times();
  EXPECT_EQ(fake.order(), "abcabcabcabcabcabc");  // a warm-up and the minimum number of rounds
}

TEST(GemmProbe, TheHopelessIsRunOnce) {
  Fake fake({{"a", {0.001}}, {"b", {0.002}}, {"c", {1}}});
  const std::vector<GemmTime> times = fake.times();
  EXPECT_EQ(fake.runs("c"), 1U);
  EXPECT_TRUE(std::isinf(times[2].seconds));
}

// Rounds take 40 ms in total, and there are at most 15.
TEST(GemmProbe, TimeIsBounded) {
  Fake some({{"a", {0.002}}, {"b", {0.002}}, {"c", {0.002}}});
  some.times();
  EXPECT_EQ(some.runs("a"), 1U + 7U);
  Fake short_ones({{"a", {1e-6}}, {"b", {1e-6}}, {"c", {1e-6}}});
  short_ones.times();
  EXPECT_EQ(short_ones.runs("a"), 1U + 15U);
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

using Numbers = std::vector<std::int64_t>;  // sums are exact

Numbers counting(std::int64_t count, std::int64_t from) {
  Numbers numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), from);
  return numbers;
}

// Packed arrays, each in one of two orders.
Product packed(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k, bool transpose_a, bool transpose_b) {
  const auto factor = [](std::int64_t rows, std::int64_t columns, bool transposed) {
    return Factor{nullptr, core::DType::f32, transposed ? 1 : columns, transposed ? rows : 1, rows * columns};
  };
  const Sums c{.data = nullptr, .dtype = core::DType::f32, .row_stride = n, .batch_stride = m * n};
  return {
      .batch = batch, .m = m, .n = n, .k = k, .a = factor(m, k, transpose_a), .b = factor(k, n, transpose_b), .c = c};
}

std::int64_t at(const Numbers& memory, const Factor& f, std::int64_t row, std::int64_t column, std::int64_t i) {
  return memory.at(static_cast<std::size_t>(i * f.batch_stride + row * f.row_stride + column * f.column_stride));
}

Numbers by_rows(const Product& p, const Numbers& a, const Numbers& b) {
  Numbers c;
  for (std::int64_t i = 0; i < p.batch; ++i) {
    for (std::int64_t row = 0; row < p.m; ++row) {
      for (std::int64_t column = 0; column < p.n; ++column) {
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < p.k; ++k) sum += at(a, p.a, row, k, i) * at(b, p.b, k, column, i);
        c.push_back(sum);
      }
    }
  }
  return c;
}

// Returns element (row, column) of `m` as the product uses it, found as a column-major library finds it.
std::int64_t element(const ColumnMatrix& m, const Numbers& memory, std::int64_t i, std::int64_t row,
                     std::int64_t column) {
  const std::int64_t r = m.transposed ? column : row;
  const std::int64_t c = m.transposed ? row : column;
  EXPECT_TRUE(r < m.rows && c < m.columns && m.leading >= m.rows);
  return memory.at(static_cast<std::size_t>(i * m.batch_stride + c * m.leading + r));
}

Numbers by_columns(const Product& product, const Numbers& a, const Numbers& b) {
  const ColumnProduct p = in_columns(product);
  const std::int64_t depth = p.first.transposed ? p.first.rows : p.first.columns;
  Numbers c(static_cast<std::size_t>(product.batch * p.result.rows * p.result.columns));
  for (std::int64_t i = 0; i < product.batch; ++i) {
    for (std::int64_t row = 0; row < p.result.rows; ++row) {
      for (std::int64_t column = 0; column < p.result.columns; ++column) {
        std::int64_t sum = 0;
        for (std::int64_t k = 0; k < depth; ++k) {
          sum += element(p.first, b, i, row, k) * element(p.second, a, i, k, column);
        }
        c.at(static_cast<std::size_t>(i * p.result.batch_stride + column * p.result.leading + row)) = sum;
      }
    }
  }
  return c;
}

// All sizes from 1 to 3: a matrix with one row or column has two strides of 1.
TEST(GemmColumns, GiveTheRowMajorProduct) {
  for (int which = 0; which < 2 * 3 * 3 * 3 * 4; ++which) {
    int rest = which;
    const auto next = [&](int choices) {
      const int digit = rest % choices;
      rest /= choices;
      return digit;
    };
    const Product p = packed(1 + 2 * next(2), 1 + next(3), 1 + next(3), 1 + next(3), next(2) == 1, next(2) == 1);
    const Numbers a = counting(p.batch * p.m * p.k, 1);
    const Numbers b = counting(p.batch * p.k * p.n, -7);
    EXPECT_EQ(by_columns(p, a, b), by_rows(p, a, b)) << which;
  }
}

TEST(GemmColumns, TheBiasIsOneNumberARowOfTheResult) {
  EXPECT_EQ(in_columns(packed(1, 2, 5, 3, false, true)).result.rows, 5);
}

TEST(GemmColumns, AlignmentIsThatOfTheAddress) {
  const auto aligned = [](std::uintptr_t address) {
    return alignment_bytes(reinterpret_cast<const void*>(address));  // NOLINT(performance-no-int-to-ptr)
  };
  EXPECT_EQ(aligned(0x1000), 256U);
  EXPECT_EQ(aligned(0x1080), 128U);
  EXPECT_EQ(aligned(0x1082), 2U);
  EXPECT_EQ(aligned(0x1001), 1U);
}

TEST(GemmColumns, AmongEqualAlgorithmsTheHeuristicsFirstIsKept) {
  constexpr double kFailed = std::numeric_limits<double>::infinity();
  const auto choose = [](const std::vector<double>& times) { return choose_algorithm(times); };
  EXPECT_EQ(choose({10.1, 10.0, 12.0}), 0);
  EXPECT_EQ(choose({10.3, 10.0, 10.1}), 1);
  EXPECT_EQ(choose({kFailed, 11.0}), 1);
  EXPECT_EQ(choose({kFailed, kFailed}), -1);
  EXPECT_EQ(choose({}), -1);
}

}  // namespace
}  // namespace lockstep::kernels
