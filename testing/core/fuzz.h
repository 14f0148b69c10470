// For tests: valid examples of a reader's input are changed at random, and the reader must take each result or refuse
// it in one line. It must not crash, hang, or allocate without limit.
//
// An input is a function of (seed, number): a finding names both, so that it can be repeated. The reader runs in a
// child process, whose memory is limited. Its parent sees from shared memory which input the child is at, kills a child
// that takes too long with one, reports a child that dies, and starts another one with the input that follows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep::core {

struct FuzzedReader {
  std::string name;
  std::vector<std::string> examples;  // valid inputs
  std::vector<std::string> words;     // words of the format, put in place of others
  // Reads an input, and whatever a program makes of it before it measures. Throws Error if it refuses the input.
  std::function<void(const std::string& input)> read;
};

struct FuzzOptions {
  std::int64_t inputs = 3000;
  std::uint64_t seed = 1;
  double longest_s = 60;  // per input, on a machine that may be busy
};

// The options with LOCKSTEP_FUZZ_INPUTS and LOCKSTEP_FUZZ_SEED of the environment in place of the defaults.
FuzzOptions fuzz_options();

std::string fuzzed_input(const FuzzedReader& reader, std::uint64_t seed, std::int64_t number);

// Why a refusal is not as it should be: it is a check of our own, or it is not one line. Empty: it is. (It may quote
// control characters and long words, which exit_status_of() makes printable.)
std::string problem_of_refusal(bool is_ours, const std::string& message);

struct FuzzResult {
  std::int64_t taken = 0;
  std::int64_t refused = 0;
  std::vector<std::string> findings;  // at most ten
};
FuzzResult fuzz(const FuzzedReader& reader, const FuzzOptions& options);

}  // namespace lockstep::core
