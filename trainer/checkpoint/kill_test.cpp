// kill -9 of a process that writes checkpoints, at any moment: the latest is always whole.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/ranks_for_tests.h"
#include "trainer/checkpoint/save_checkpoint.h"

namespace lockstep::trainer {
namespace {

namespace fs = std::filesystem;

const std::vector<WholeTensor> kTensorsOfKills = {{"w", {100, 64}}, {"b", {64}}};

// Saves step after step until it is killed, each step twice, as a run that went on from an older step does.
[[noreturn]] void save_for_ever(const std::string& folder, std::int64_t step) {
  Share share = whole_share(kTensorsOfKills);
  for (;; ++step) {
    share.fill(step);
    for (int again = 0; again < 2; ++again) {
      save_checkpoint(folder, {.step = step}, kTensorsOfKills, share.pieces, {}, 2);
    }
  }
}

// The step of the latest checkpoint, all of whose elements are right; 0 if there is none.
std::int64_t check_latest(const std::string& folder) {
  if (!find_checkpoint(folder)) return 0;
  Checkpoint checkpoint(folder);
  Share share = whole_share(kTensorsOfKills);
  checkpoint.read(kTensorsOfKills, share.pieces);
  EXPECT_EQ(share.wrong(checkpoint.manifest().step), 0);
  return checkpoint.manifest().step;
}

TEST(Kill, LeavesTheLastGoodCheckpoint) {
  const TemporaryFolder folder;
  core::Random random(3);
  std::int64_t step = 0;
  int cut = 0;  // kills that found a checkpoint half written or half removed
  for (int trial = 0; trial < 40; ++trial) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_for_ever(folder.path(), step + 1);
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + random.below(40'000)));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    const std::int64_t latest = check_latest(folder.path());
    EXPECT_GE(latest, step);  // nothing that was there has gone
    step = latest;
    for (const auto& entry : fs::directory_iterator(folder.path())) {
      if (entry.path().extension() == ".partial") ++cut;
    }
  }
  EXPECT_GT(step, 0);
  EXPECT_GT(cut, 0);
  // The next writer removes what the killed ones have left.
  Share share = whole_share(kTensorsOfKills);
  share.fill(step + 1);
  save_checkpoint(folder.path(), {.step = step + 1}, kTensorsOfKills, share.pieces, {}, 1);
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.path())) names.insert(entry.path().filename().string());
  EXPECT_EQ(names, (std::set<std::string>{"latest", checkpoint_name(step + 1)}));
}

}  // namespace
}  // namespace lockstep::trainer
