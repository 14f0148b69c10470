#include "core/provenance.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <regex>
#include <set>

#include "core/cores.h"

namespace lockstep::core {
namespace {

TEST(Provenance, SourceIsARevisionOrUnknown) {
  const Source found = source();
  EXPECT_TRUE(found.revision == "unknown" || std::regex_match(found.revision, std::regex("[0-9a-f]{40}")))
      << found.revision;
  EXPECT_EQ(found.dirty.has_value(), found.revision != "unknown");
}

TEST(Provenance, BuildNamesCompilerFlagsAndType) {
  const Build found = build();
  EXPECT_TRUE(std::regex_match(*found.compiler, std::regex("(GNU|Clang) [0-9.]+"))) << *found.compiler;
  EXPECT_NE(found.flags->find("-std=c++20"), std::string::npos) << *found.flags;
  EXPECT_EQ(found.flags->find('/'), std::string::npos) << "a path";
  EXPECT_FALSE(found.type->empty());
  EXPECT_TRUE(std::regex_match(found.version, std::regex("[0-9]+\\.[0-9]+\\.[0-9]+"))) << found.version;
}

TEST(Provenance, MachineIsThisOne) {
  const Machine machine = this_machine();
  EXPECT_EQ(machine.cores, usable_cores());
  EXPECT_GE(machine.cores, 1);
  ASSERT_TRUE(machine.memory_bytes.has_value());
  EXPECT_GT(*machine.memory_bytes, std::int64_t{64} << 20);
  EXPECT_TRUE(machine.kernel.value().starts_with("Linux ")) << *machine.kernel;
  std::ifstream cpuinfo("/proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(cpuinfo)), {});
  if (machine.cpu) {
    EXPECT_NE(text.find(*machine.cpu), std::string::npos);
  }
  if (machine.caches.l1d_bytes && machine.caches.l2_bytes) {
    EXPECT_LE(*machine.caches.l1d_bytes, *machine.caches.l2_bytes);
  }
}

TEST(Provenance, UsableCoresFollowTheAffinity) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int core = 0;
  while (!CPU_ISSET(core, &before)) ++core;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
}

TEST(Provenance, FingerprintChangesWithTheMachineAndNotWithItsClock) {
  const Machine machine = this_machine();
  EXPECT_TRUE(std::regex_match(fingerprint(machine), std::regex("[0-9a-f]{16}")));
  EXPECT_EQ(fingerprint(machine), fingerprint(this_machine()));
  Machine other = machine;
  other.mhz = 1;
  EXPECT_EQ(fingerprint(other), fingerprint(machine));
  std::set<std::string> prints{fingerprint(machine)};
  other.cores += 1;
  prints.insert(fingerprint(other));
  other.gpus = {"a GPU"};
  prints.insert(fingerprint(other));
  other.hosts = 4;
  prints.insert(fingerprint(other));
  EXPECT_EQ(prints.size(), 4u);
}

TEST(Provenance, HoldsNothingPrivate) {
  std::array<char, 256> host{};
  gethostname(host.data(), host.size() - 1);
  const Machine machine = this_machine();
  EXPECT_EQ(machine.kernel.value().find(host.data()), std::string::npos);
}

TEST(Provenance, CommandsKeepNoFolders) {
  EXPECT_EQ(public_command({"x_perf", "-b", "8", "--json", "/home/someone/r.jsonl", "--json=/root/r.jsonl", "~/a/b",
                            "out/r.jsonl", "--link", "latency_us=1,gbps=2", "-i", "/"}),
            (std::vector<std::string>{"x_perf", "-b", "8", "--json", "r.jsonl", "--json=r.jsonl", "b", "out/r.jsonl",
                                      "--link", "latency_us=1,gbps=2", "-i", ""}));
}

TEST(Provenance, RunsAreToldApart) {
  std::set<std::string> ids;
  for (int k = 0; k < 100; ++k) ids.insert(new_run_id());
  EXPECT_EQ(ids.size(), 100u);
  EXPECT_TRUE(std::regex_match(*ids.begin(), std::regex("[0-9a-f]{16}")));
}

TEST(Provenance, TimeIsUtcIso8601) {
  EXPECT_TRUE(
      std::regex_match(utc_now(), std::regex("20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z")))
      << utc_now();
}

}  // namespace
}  // namespace lockstep::core
