#include "bench/kernels/operand_sets.h"

#include <gtest/gtest.h>

#include <set>

#include "core/device_cpu.h"
#include "kernels/embedding/embedding.h"
#include "kernels/embedding/embedding_reference.h"
#include "kernels/registry.h"

namespace lockstep::kernel_bench {
namespace {

struct Fixture {
  std::unique_ptr<core::Device> device = core::make_cpu_device();
  Arena arena{*device};
  kernels::KernelCase one = kernels::gelu_test_cases().front();  // one element
  kernels::ReferenceData<double> inputs = kernels::draw_inputs(one, 1);
  Patterns patterns = exact_patterns(one, 1);
};

TEST(OperandSets, WarmOperandsAreAlwaysTheSame) {
  Fixture f;
  OperandSets sets(f.arena, f.one, f.patterns, 0);
  EXPECT_EQ(sets.number(), 1u);
  void* const first = sets.next()[0];
  EXPECT_EQ(sets.next()[0], first);
}

TEST(OperandSets, ColdOperandsComeBackOnlyAfterAllOthers) {
  Fixture f;
  for (double least_bytes : {1e3, 1e4, 1e5, 123456.0}) {
    OperandSets sets(f.arena, f.one, f.patterns, least_bytes);
    std::set<void*> seen;
    for (std::size_t i = 0; i < sets.number(); ++i) seen.insert(sets.next()[0]);
    EXPECT_EQ(seen.size(), sets.number()) << least_bytes;
    const std::ptrdiff_t reach = static_cast<std::byte*>(*seen.rbegin()) - static_cast<std::byte*>(*seen.begin());
    EXPECT_GE(static_cast<double>(reach), least_bytes - 2000);
  }
}

TEST(OperandSets, EverySetHoldsTheInputsApartFromEachOther) {
  Fixture f;
  OperandSets sets(f.arena, f.one, f.patterns, 1e4);
  for (std::size_t i = 0; i < sets.number(); ++i) {
    const auto pointers = sets.next();
    EXPECT_EQ(kernels::load(f.one.operands[0].dtype, pointers[0], 1), f.inputs.arrays()[0].second);
    EXPECT_NE(pointers[0], pointers[1]);
  }
}

TEST(OperandSets, ATableIsThereOnceAndEachSetNamesOtherRows) {
  Fixture f;
  const std::int64_t rows = 1000;
  const kernels::KernelCase one =
      kernels::make_case(kernels::EmbeddingForward{.tokens = 4, .rows = rows, .columns = 64},
                         {.shape = "V1000", .draws = {{"ids", {.kind = kernels::Draw::Kind::index, .below = rows}}}});
  OperandSets sets(f.arena, one, exact_patterns(one, 1), 1e5);
  EXPECT_GT(sets.number(), 20u) << "as many as touch 1e5 bytes";
  std::set<void*> tables;
  std::set<void*> outputs;
  std::set<double> first_ids;
  for (std::size_t i = 0; i < sets.number(); ++i) {
    const auto pointers = sets.next();
    tables.insert(pointers[1]);
    outputs.insert(pointers[2]);
    for (double id : kernels::load(core::DType::i32, pointers[0], 4)) {
      EXPECT_GE(id, 0);
      EXPECT_LT(id, rows);
    }
    first_ids.insert(kernels::load(core::DType::i32, pointers[0], 1)[0]);
  }
  EXPECT_EQ(tables.size(), 1u);
  EXPECT_EQ(outputs.size(), sets.number());
  EXPECT_EQ(first_ids.size(), sets.number());
}

TEST(OperandSets, LongOperandsRepeatAPatternOfTheSameKind) {
  Fixture f;
  for (kernels::KernelCase& one : kernels::gelu_bench_cases()) {
    const Patterns patterns = short_patterns(one, 1);
    OperandSets sets(f.arena, one, patterns, 0);
    const kernels::CaseOperand& x = one.operands[0];
    const std::vector<double> values = kernels::load(x.dtype, sets.next()[0], x.elems);
    EXPECT_LT(patterns[0].size(), x.bytes());
    EXPECT_EQ(values[5], values[5 + (1 << 18)]);
    EXPECT_NE(values[5], values[6]);
    EXPECT_NE(values.back(), 0) << "filled to the end";
  }
}

}  // namespace
}  // namespace lockstep::kernel_bench
