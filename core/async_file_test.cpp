#include "core/async_file.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "testing/core/fixtures.h"
#include "testing/core/thrown.h"

namespace lockstep::core {
namespace {

constexpr std::int64_t kBlock = AsyncFile::kAlign;

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};
using Blocks = std::unique_ptr<std::uint8_t, Free>;
Blocks blocks(std::int64_t count) {
  return Blocks(static_cast<std::uint8_t*>(std::aligned_alloc(kBlock, static_cast<std::size_t>(count * kBlock))));
}

std::string refusal_of_options(const AsyncFile::Options& options) {
  return refusal_of([&] { const AsyncFile file(options); });
}

// More requests than the queue takes, in pieces that are not multiples of the request size, in both directions at once.
TEST(AsyncFile, GivesBackWhatWasWritten) {
  constexpr std::int64_t kCount = 67;
  const TemporaryFolder folder;
  AsyncFile file({.folder = folder.path(), .bytes = 2 * kCount * kBlock, .depth = 3, .request_bytes = 4 * kBlock});
  const Blocks first = blocks(kCount);
  const Blocks second = blocks(kCount);
  const Blocks back = blocks(kCount);
  for (std::int64_t i = 0; i < kCount * kBlock; ++i) {
    first.get()[i] = static_cast<std::uint8_t>(i * 7 + i / kBlock);
    second.get()[i] = static_cast<std::uint8_t>(i * 5 + 1);
  }
  file.wait(file.write(0, first.get(), kCount * kBlock));
  const AsyncFile::Ticket read = file.read(0, back.get(), kCount * kBlock);
  const AsyncFile::Ticket write = file.write(kCount * kBlock, second.get(), kCount * kBlock);
  file.wait(write);
  file.wait(read);
  EXPECT_EQ(std::memcmp(back.get(), first.get(), kCount * kBlock), 0);
  file.wait(file.read(kCount * kBlock, back.get(), kCount * kBlock));
  EXPECT_EQ(std::memcmp(back.get(), second.get(), kCount * kBlock), 0);
}

TEST(AsyncFile, ReadsZerosWhereNothingWasWritten) {
  const TemporaryFolder folder;
  AsyncFile file({.folder = folder.path(), .bytes = kBlock});
  const Blocks back = blocks(1);
  std::memset(back.get(), 1, kBlock);
  file.wait(file.read(0, back.get(), kBlock));
  EXPECT_EQ(std::vector<std::uint8_t>(back.get(), back.get() + kBlock), std::vector<std::uint8_t>(kBlock));
}

TEST(AsyncFile, LeavesNothingBehindAndHasNoName) {
  const TemporaryFolder folder;
  const AsyncFile file({.folder = folder.path(), .bytes = 16 * kBlock});
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(AsyncFile, ReportsAtOnceThatThereIsNoFolderOrNoRoom) {
  EXPECT_TRUE(has(refusal_of_options({.folder = "/no/such/folder", .bytes = kBlock}),
                  "offload folder '/no/such/folder': cannot create a file: No such file or directory; allowed"));
  const TemporaryFolder folder;
  const std::string full = refusal_of_options({.folder = folder.path(), .bytes = std::int64_t{1} << 60});
  EXPECT_TRUE(has(full, ": not enough space for 1152921504606846976 bytes: "));
}

// Reads into memory that cannot be written, which stands in for a device that fails.
TEST(AsyncFile, AFailedReadIsReportedWithItsPlace) {
  const TemporaryFolder folder;
  AsyncFile file({.folder = folder.path(), .bytes = 4 * kBlock});
  void* const nowhere = mmap(nullptr, kBlock, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(nowhere, MAP_FAILED);
  const AsyncFile::Ticket ticket = file.read(kBlock, nowhere, kBlock);
  EXPECT_TRUE(has(error_text([&] { file.wait(ticket); }), "a read of 4096 bytes at offset 4096 failed: Bad address"));
  const Blocks back = blocks(1);
  file.wait(file.read(0, back.get(), kBlock));  // the next request is not affected
  munmap(nowhere, kBlock);
}

}  // namespace
}  // namespace lockstep::core
