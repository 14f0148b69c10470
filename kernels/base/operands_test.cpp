// Checks that every refusal of a kernel's arguments names the argument.
#include "kernels/base/operands.h"

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "kernels/base/case_checks.h"
#include "kernels/base/context.h"
#include "kernels/gelu/gelu.h"

namespace lockstep::kernels {
namespace {

alignas(64) std::array<float, 64> storage{};

GeluForward good() {
  GeluForward args = shaped(GeluForward{.count = 8}, core::DType::f32);
  args.x.data = storage.data();
  args.y.data = storage.data() + 8;
  return args;
}

std::string refusal(const std::function<void(GeluForward&)>& spoil) {
  GeluForward args = good();
  spoil(args);
  return kernels::refusal(args);
}

TEST(Operands, GoodArgumentsPass) {
  EXPECT_EQ(refusal([](auto&) {}), "");
  EXPECT_EQ(refusal([](auto& args) { args.y.data = storage.data(); }), "") << "y may be x";
}

TEST(Operands, WrongArgumentsAreNamed) {
  EXPECT_EQ(refusal([](auto& args) { args.count = 0; }), "gelu_fwd: count is 0; allowed: at least 1");
  EXPECT_EQ(refusal([](auto& args) { args.y.elems = 7; }), "gelu_fwd: y has 7 elements; its shape requires 8");
  EXPECT_EQ(refusal([](auto& args) { args.x.data = nullptr; }), "gelu_fwd: x has no memory");
  EXPECT_EQ(refusal([](auto& args) { args.x.dtype = core::DType::i32; }),
            "gelu_fwd: x is int32; allowed: half, float, bfloat16");
  EXPECT_EQ(refusal([](auto& args) { args.y.dtype = core::DType::bf16; }), "gelu_fwd: y is bfloat16; allowed: float");
  EXPECT_EQ(refusal([](auto& args) { args.x.data = reinterpret_cast<std::byte*>(storage.data()) + 2; }),
            "gelu_fwd: x is not aligned to its elements of 4 bytes");
  EXPECT_EQ(refusal([](auto& args) { args.y.data = storage.data() + 4; }), "gelu_fwd: x and y overlap");
}

// y's rows start `begin` elements after x's; both have four rows, and the last row ends with the operand's 26 elements.
std::string refusal_of_rows(std::ptrdiff_t begin, Rows x_rows, Rows y_rows) {
  const auto at = [](std::ptrdiff_t first) { return storage.data() + 16 + first; };
  const std::vector<Operand> operands{{"x", Access::read, at(0), core::DType::f32, 26, 26, kF32, x_rows},
                                      {"y", Access::write, at(begin), core::DType::f32, 26, 26, kF32, y_rows}};
  return usage_error_of([&] { check_operands("k", operands); });
}

TEST(Operands, RowsBetweenRowsDoNotOverlap) {
  const Rows two{.elems = 2, .stride = 8};
  for (std::ptrdiff_t begin : {2, 3, 6, -2, -6, 10, 18}) EXPECT_EQ(refusal_of_rows(begin, two, two), "") << begin;
  for (std::ptrdiff_t begin : {0, 1, 7, -1, -7, 8, 9, -8, 16}) {
    EXPECT_EQ(refusal_of_rows(begin, two, two), "k: x and y overlap") << begin;
  }
  EXPECT_EQ(refusal_of_rows(4, {.elems = 4, .stride = 8}, two), "");
  EXPECT_EQ(refusal_of_rows(3, {.elems = 4, .stride = 8}, two), "k: x and y overlap");
  EXPECT_EQ(refusal_of_rows(3, two, {.elems = 2, .stride = 9}), "k: x and y overlap") << "strides differ";
  EXPECT_EQ(refusal_of_rows(3, two, {}), "k: x and y overlap") << "y is dense";
}

}  // namespace
}  // namespace lockstep::kernels
