// Properties of CUDA devices that hold on every machine: with a GPU, without one, without a driver, and not built in.
#include "core/device_cuda.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/trace.h"

namespace lockstep::core {
namespace {

TEST(CudaDevices, ThereAreSomeOrAReason) {
  const auto why = why_no_cuda();
  EXPECT_EQ(cuda_devices().empty(), why.has_value());
  if (why) {
    EXPECT_NE(why->find("CUDA"), std::string::npos);
    EXPECT_EQ(why->find('\n'), std::string::npos);
  }
}

TEST(CudaDevices, MakingOneThatIsNotThereIsAClearError) {
  const int past_the_end = static_cast<int>(cuda_devices().size());
  for (const int index : {past_the_end, -1}) {
    try {
      make_cuda_device(index, 3);
      FAIL() << "made device " << index;
    } catch (const Error& error) {
      if (const auto why = why_no_cuda()) {
        EXPECT_NE(std::string(error.what()).find(*why), std::string::npos) << error.what();
      } else {
        EXPECT_EQ(error.failure(), Failure::usage);
        EXPECT_NE(std::string(error.what()).find("rank 3"), std::string::npos) << error.what();
      }
    }
  }
}

TEST(Trace, RangesNestInEveryBuild) {
  const ScopedRange outer("outer");
  const ScopedRange inner("inner");
  EXPECT_EQ(trace_ranges_built(), !why_no_cuda() || why_no_cuda()->find("not built in") == std::string::npos);
}

}  // namespace
}  // namespace lockstep::core
