// Compares vector functions with f64 on every instruction set that this machine supports, at floats of every exponent.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "testing/kernels/kernel_checks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/base/vector_math_test.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h must come before the others.
#include "kernels/base/vector_io-inl.h"
#include "kernels/base/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels {
namespace HWY_NAMESPACE {
namespace {

template <VF32 (*kFunction)(VF32)>
void all_of(const float* x, float* y, std::size_t count) {
  const std::size_t lanes = lanes_f32();
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) store(kFunction(load(x + i)), y + i);
  if (i < count) store_tail(kFunction(load_tail(x + i, count - i)), y + i, count - i);
}

void all_exp(const float* x, float* y, std::size_t count) {
  all_of<exp_f32>(x, y, count);
}
void all_exp_below_88(const float* x, float* y, std::size_t count) {
  all_of<exp_below_88_f32>(x, y, count);
}
void all_reciprocal_of_normal(const float* x, float* y, std::size_t count) {
  all_of<reciprocal_of_normal_f32>(x, y, count);
}
void all_weights_3(const float* x, float* y, std::size_t count) {
  all_of<weight_f32<3>>(x, y, count);
}
void all_weights_4(const float* x, float* y, std::size_t count) {
  all_of<weight_f32<4>>(x, y, count);
}
void all_weights_5(const float* x, float* y, std::size_t count) {
  all_of<weight_f32<5>>(x, y, count);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace lockstep::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels {
namespace {
HWY_EXPORT(all_exp);
HWY_EXPORT(all_exp_below_88);
HWY_EXPORT(all_reciprocal_of_normal);
HWY_EXPORT(all_weights_3);
HWY_EXPORT(all_weights_4);
HWY_EXPORT(all_weights_5);

using All = void (*)(const float* x, float* y, std::size_t count);
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kLeast = 0x1p-126F;  // smallest normal number
constexpr float kMost = std::numeric_limits<float>::max();

struct Function {
  std::string name;
  All all;  // on the instruction set that is chosen now
  double (*exact)(double);
};
Function exp_function() {
  return {"exp", HWY_DYNAMIC_DISPATCH(all_exp), [](double x) { return std::exp(x); }};
}
Function exp_below_88_function() {
  return {"exp_below_88", HWY_DYNAMIC_DISPATCH(all_exp_below_88), [](double x) { return std::exp(x); }};
}
Function reciprocal_of_normal_function() {
  return {"reciprocal_of_normal", HWY_DYNAMIC_DISPATCH(all_reciprocal_of_normal), [](double x) { return 1 / x; }};
}

std::vector<float> evaluated(const Function& function, const std::vector<float>& x) {
  std::vector<float> y(x.size());
  function.all(x.data(), y.data(), x.size());
  return y;
}

// Returns the error in units in the last place of `exact` as a float; below the smallest normal number, in units of
// that number's last place.
double ulps(float got, double exact) {
  constexpr double kEnough = 1e30;
  if (std::fabs(exact) >= 0x1p128 * (1 - 0x1p-25)) return std::isinf(got) ? 0 : kEnough;
  if (!std::isfinite(got)) return kEnough;
  const int exponent = exact == 0 ? -126 : std::max(std::ilogb(exact), -126);
  return std::fabs(static_cast<double>(got) - exact) / std::ldexp(1.0, exponent - 23);
}

// Returns every 1009th float (a prime) from `low` to `high`, which have the same sign, and both ends.
std::vector<float> samples(float low, float high) {
  std::vector<float> x{low, high};
  const float sign = std::signbit(low) ? -1.0F : 1.0F;
  const auto bits_of = [](float value) { return std::bit_cast<std::uint32_t>(std::fabs(value)); };
  const auto [least, most] = std::minmax({bits_of(low), bits_of(high)});
  for (std::uint32_t bits = least; bits < most; bits += 1009) x.push_back(sign * std::bit_cast<float>(bits));
  return x;
}

// An error bound that vector_math-inl.h states, for x from low to high, which have the same sign.
struct Claim {
  Function function;
  float low;
  float high;
  double most_ulps;
};

std::vector<Claim> claims(const std::string& target) {
  const double exp_ulps = target.starts_with("AVX") ? 2 : 2.5;  // with or without fused multiply-add
  return {
      {exp_function(), 0.0F, 88.72283F, exp_ulps},
      {exp_function(), -87.33F, -0.0F, exp_ulps},
      {exp_function(), 88.72284F, kMost, 0},
      {exp_below_88_function(), 0.0F, 88.0F, exp_ulps},
      {exp_below_88_function(), -87.33F, -0.0F, exp_ulps},
      {reciprocal_of_normal_function(), kLeast, 0x1p126F, 1},
  };
}

struct Measured {
  double ulps = 0;
  float x = 0;
};

Measured largest_error(const Claim& claim) {
  const std::vector<float> x = samples(claim.low, claim.high);
  const std::vector<float> y = evaluated(claim.function, x);
  Measured worst;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double error = ulps(y[i], claim.function.exact(x[i]));
    if (error > worst.ulps) worst = {error, x[i]};
  }
  return worst;
}

TEST(VectorMath, ErrorsAreWithinWhatIsStated) {
  on_each_target([](const std::string& target) {
    for (const Claim& claim : claims(target)) {
      const Measured worst = largest_error(claim);
      EXPECT_LE(worst.ulps, claim.most_ulps)
          << target << " " << claim.function.name << " at " << std::hexfloat << worst.x;
      RecordProperty(target + "_" + claim.function.name + (std::signbit(claim.low) ? "_negative_ulps" : "_ulps"),
                     std::to_string(worst.ulps));
    }
  });
}

TEST(VectorMath, TheErrorOfAWrongFunctionIsSeen) {
  Claim claim{exp_function(), 0.0F, 1.0F, 2};
  claim.function.exact = [](double x) { return std::exp(x) * (1 + 1e-6); };
  EXPECT_GT(largest_error(claim).ulps, 2);
}

// Checks one result at every position of a vector, in whole vectors and in a tail.
void expect_value(const Function& function, float x, float wanted, const std::string& target) {
  const std::vector<float> results = evaluated(function, std::vector<float>(37, x));
  for (float result : results) {
    const bool same = std::isnan(wanted) ? std::isnan(result)
                                         : std::bit_cast<std::uint32_t>(result) == std::bit_cast<std::uint32_t>(wanted);
    EXPECT_TRUE(same) << target << " " << function.name << "(" << x << ") is " << result << ", should be " << wanted;
  }
}

TEST(VectorMath, SpecialValuesAreAsStated) {
  on_each_target([](const std::string& target) {
    struct Special {
      Function function;
      float x;
      float wanted;
    };
    const float payload = std::bit_cast<float>(0x7fffffffu);
    const std::vector<Special> specials{
        {exp_function(), kInf, kInf},
        {exp_function(), -kInf, 0.0F},
        {exp_function(), -kMost, 0.0F},
        {exp_function(), -0.0F, 1.0F},
        {exp_below_88_function(), -kInf, 0.0F},
        {exp_below_88_function(), -kMost, 0.0F},
        {exp_below_88_function(), -104.0F, 0.0F},
    };
    for (const Special& special : specials) expect_value(special.function, special.x, special.wanted, target);
    for (const Claim& claim : claims(target)) {
      for (float nan : {kNaN, -kNaN, payload}) expect_value(claim.function, nan, kNaN, target);
    }
  });
}

// Below the normal numbers, exp is either zero or within two subnormal numbers of the exact value.
TEST(VectorMath, ExpUnderflowsGradually) {
  on_each_target([](const std::string& target) {
    const std::vector<float> x = samples(-110.0F, -87.33F);
    const std::vector<float> y = evaluated(exp_below_88_function(), x);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_TRUE(y[i] == 0 || std::fabs(y[i] - std::exp(static_cast<double>(x[i]))) <= 0x1p-148)
          << target << " " << x[i];
    }
  });
}

// Weights of every precision, with the largest relative error that is stated for 2^t.
struct Weights {
  Function function;
  float exp2_error;
};
std::vector<Weights> all_weights() {
  const auto exact = [](double x) { return std::exp(x); };
  return {{{"weight<3>", HWY_DYNAMIC_DISPATCH(all_weights_3), exact}, HWY_NAMESPACE::kExp2Error<3>},
          {{"weight<4>", HWY_DYNAMIC_DISPATCH(all_weights_4), exact}, HWY_NAMESPACE::kExp2Error<4>},
          {{"weight<5>", HWY_DYNAMIC_DISPATCH(all_weights_5), exact}, HWY_NAMESPACE::kExp2Error<5>}};
}

double largest_weight_excess(const Weights& weights, float low, float high) {
  const std::vector<float> x = samples(low, high);
  const std::vector<float> y = evaluated(weights.function, x);
  double most = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double allowed = weights.exp2_error + 9e-8 * std::fabs(static_cast<double>(x[i]));
    most = std::max(most, std::fabs(y[i] / std::exp(static_cast<double>(x[i])) - 1) / allowed);
  }
  return most;
}

TEST(VectorMath, WeightsAreWithinWhatIsStated) {
  on_each_target([](const std::string& target) {
    for (const Weights& weights : all_weights()) {
      EXPECT_LE(largest_weight_excess(weights, -87.3F, -0.0F), 1) << target << " " << weights.function.name;
      EXPECT_LE(largest_weight_excess(weights, 0.0F, 88.0F), 1) << target << " " << weights.function.name;
    }
  });
}

TEST(VectorMath, WeightsOfSpecialValues) {
  on_each_target([](const std::string& target) {
    for (const Weights& weights : all_weights()) {
      for (float x : {-kInf, -kMost, -104.0F, -87.4F}) expect_value(weights.function, x, 0.0F, target);
      for (float x : {0.0F, -0.0F}) expect_value(weights.function, x, 1.0F, target);
      expect_value(weights.function, kNaN, kNaN, target);
      for (float y : evaluated(weights.function, {89.0F, 1e6F, kMost, kInf})) EXPECT_GE(y, 1e38F) << target;
    }
  });
}

}  // namespace
}  // namespace lockstep::kernels
#endif  // HWY_ONCE
