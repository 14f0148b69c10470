#include "core/open_library.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

namespace lockstep::core {
namespace {

TEST(OpenedLibrary, TheFirstThatIsThereIsTaken) {
  const OpenedLibrary opened("maths", Failure::cuda, std::array{"libnowhere.so.1", "libm.so.6"});
  EXPECT_DOUBLE_EQ(opened.find<double(double)>("cbrt")(27), 3);
}

TEST(OpenedLibrary, OneThatIsMissingIsNamedWithAllPlaces) {
  try {
    const OpenedLibrary opened("NCCL", Failure::nccl, std::array{"libnowhere.so.1", "/not/there/libnowhere.so"});
    FAIL() << "opened what is not there";
  } catch (const Error& error) {
    EXPECT_EQ(error.failure(), Failure::nccl);
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("NCCL cannot be opened")) << text;
    EXPECT_NE(text.find("LD_LIBRARY_PATH"), std::string::npos) << text;
    EXPECT_NE(text.find("libnowhere.so.1: cannot open"), std::string::npos) << text;
    EXPECT_NE(text.find("/not/there/libnowhere.so: cannot open"), std::string::npos) << text;
  }
}

TEST(OpenedLibrary, AFunctionThatIsMissingIsNamed) {
  const OpenedLibrary opened("maths", Failure::cuda, std::array{"libm.so.6"});
  try {
    opened.find<void()>("no_such_function");
    FAIL() << "found what is not there";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "maths has no no_such_function");
  }
}

}  // namespace
}  // namespace lockstep::core
