#include "trainer/step/memory_need.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.h"

namespace lockstep::trainer {
namespace {

const workload::Layout kLayout{.dp = 4, .microbatch_size = 2};

workload::Model model_that_needs() {
  return workload::parse_model("layers=2,hidden=32,heads=4,vocabulary=61,sequence=16,dropout=no");
}

std::string memory_refusal_of(const std::vector<GpuRoom>& gpus) {
  try {
    check_gpu_memory(make_train_step(model_that_needs(), kLayout), model_that_needs(), kLayout, gpus);
  } catch (const core::Error& error) {
    EXPECT_EQ(error.failure(), core::Failure::usage);
    return error.what();
  }
  return "";
}

std::int64_t need_of_a_rank() {
  return parallel::total_of(
      memory_need(make_train_step(model_that_needs(), kLayout), model_that_needs(), kLayout, 0).at_peak());
}

TEST(GpuMemory, RanksThatShareAGpuShareItsMemory) {
  const std::int64_t need = need_of_a_rank();
  EXPECT_EQ(memory_refusal_of({{"cuda:0", {0, 1, 2}, 3 * need}, {"cuda:1", {3}, need}}), "");
  EXPECT_NE(memory_refusal_of({{"cuda:0", {0, 1, 2}, 3 * need - 1}, {"cuda:1", {3}, need}}), "");
}

TEST(GpuMemory, TheRefusalNamesTheGpuItsRanksAndWhatHelps) {
  const std::int64_t need = need_of_a_rank();
  const std::string told = memory_refusal_of({{"cuda:0", {0, 2}, 2 * need}, {"cuda:1", {1, 3}, need}});
  EXPECT_NE(told.find(model_that_needs().name + " on 2 ranks of cuda:1 needs about "), std::string::npos) << told;
  EXPECT_NE(told.find("what helps: "), std::string::npos) << told;
  EXPECT_EQ(told.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::trainer
