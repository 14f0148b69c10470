#include "testing/core/fuzz.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <new>
#include <string_view>
#include <thread>
#include <utility>

#include <unistd.h>

#include "core/error.h"
#include "core/random.h"

namespace lockstep::core {
namespace {

constexpr std::size_t kMostFindings = 10;
constexpr std::int64_t kMostMemoryBytes = std::int64_t{1} << 29;  // that reading a few KB may take

// Texts at which readers commonly fail: limits of integers and floats, signs, other bases, brackets, other encodings.
constexpr std::array<std::string_view, 48> kHostile{"0",
                                                    "1",
                                                    "-1",
                                                    "-0",
                                                    "2",
                                                    "3",
                                                    "7",
                                                    "255",
                                                    "256",
                                                    "65536",
                                                    "1048576",
                                                    "2147483647",
                                                    "2147483648",
                                                    "-2147483648",
                                                    "4294967296",
                                                    "9223372036854775807",
                                                    "9223372036854775808",
                                                    "-9223372036854775808",
                                                    "18446744073709551616",
                                                    "1e9",
                                                    "1e18",
                                                    "1e19",
                                                    "1e308",
                                                    "1e400",
                                                    "-1e400",
                                                    "1e-400",
                                                    "nan",
                                                    "NaN",
                                                    "inf",
                                                    "-inf",
                                                    "Infinity",
                                                    "0x10",
                                                    "1.",
                                                    ".5",
                                                    "1.5",
                                                    "+1",
                                                    "00",
                                                    "true",
                                                    "null",
                                                    "[]",
                                                    "{}",
                                                    "\"\"",
                                                    "",
                                                    "[",
                                                    "{",
                                                    "\xff\xfe",
                                                    "\xc3\xa9",
                                                    "\\u0000"};

bool in_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' || c == '+';
}

// Changes of a text. Positions are drawn from all of it, and lengths are mostly short.
class Mutator {
 public:
  Mutator(const FuzzedReader& reader, Random& random) : reader_(reader), random_(random) {}

  void change(std::string& text) {
    constexpr std::array kChanges{&Mutator::put_byte,   &Mutator::put_byte,    &Mutator::put_word, &Mutator::put_word,
                                  &Mutator::put_word,   &Mutator::put_word,    &Mutator::add_word, &Mutator::remove,
                                  &Mutator::repeat,     &Mutator::repeat_line, &Mutator::cut,      &Mutator::splice,
                                  &Mutator::swap_words, &Mutator::nest};
    (this->*kChanges.at(random_.below(kChanges.size())))(text);
  }

 private:
  using Range = std::pair<std::size_t, std::size_t>;  // begin, length

  std::size_t place_in(const std::string& text) { return random_.below(text.size() + 1); }
  std::size_t length_from(const std::string& text, std::size_t begin) {
    const std::size_t most = random_.below(8) == 0 ? text.size() + 1 : 9;
    return std::min<std::size_t>(random_.below(most), text.size() - begin);
  }
  Range word_of(const std::string& text) {
    std::size_t begin = place_in(text);
    while (begin < text.size() && !in_word(text[begin])) ++begin;
    while (begin > 0 && in_word(text[begin - 1])) --begin;
    std::size_t end = begin;
    while (end < text.size() && in_word(text[end])) ++end;
    return {begin, end - begin};
  }
  std::string_view new_word() {
    const bool ours = !reader_.words.empty() && random_.below(3) == 0;
    if (ours) return reader_.words[random_.below(reader_.words.size())];
    return kHostile.at(random_.below(kHostile.size()));
  }

  void put_byte(std::string& text) {
    if (!text.empty()) text[random_.below(text.size())] = static_cast<char>(random_.below(256));
  }
  void put_word(std::string& text) {
    const auto [begin, length] = word_of(text);
    text.replace(begin, length, new_word());
  }
  void add_word(std::string& text) { text.insert(place_in(text), new_word()); }
  void remove(std::string& text) {
    const std::size_t begin = place_in(text);
    text.erase(begin, length_from(text, begin));
  }
  void repeat(std::string& text) {
    const std::size_t begin = place_in(text);
    const std::string part = text.substr(begin, length_from(text, begin));
    for (std::uint64_t times = random_.below(4) + 1; times > 0; --times) text.insert(begin, part);
  }
  void repeat_line(std::string& text) {
    const std::size_t begin = text.rfind('\n', place_in(text)) + 1;  // npos + 1: the first line
    const std::string line = text.substr(begin, text.find('\n', begin) - begin + 1);
    text.insert(begin, line);
  }
  void cut(std::string& text) { text.resize(place_in(text)); }
  void splice(std::string& text) {
    const std::string& other = reader_.examples[random_.below(reader_.examples.size())];
    text = text.substr(0, place_in(text)) + other.substr(place_in(other));
  }
  void swap_words(std::string& text) {
    const auto [begin, length] = word_of(text);
    const auto [from, other_length] = word_of(text);
    const std::string other = text.substr(from, other_length);
    text.replace(begin, length, other);
  }
  // Deep nesting ends a reader that calls itself for each level.
  void nest(std::string& text) {
    if (random_.below(16) != 0) return add_word(text);
    const std::size_t depth = std::size_t{1} << (4 + random_.below(13));
    const auto [begin, length] = word_of(text);
    text.replace(begin, length, std::string(depth, '[') + "1" + std::string(depth, ']'));
  }

  const FuzzedReader& reader_;
  Random& random_;
};

// Printable, at most a few hundred characters.
std::string shown(const std::string& text) {
  std::string all;
  for (const char c : text.substr(0, 1500)) {
    std::array<char, 8> code{};
    const bool plain = c >= ' ' && c <= '~' && c != '\\';
    if (!plain) std::snprintf(code.data(), code.size(), c == '\n' ? "\\n" : "\\x%02x", static_cast<unsigned char>(c));
    plain ? all.push_back(c) : void(all.append(code.data()));
  }
  return text.size() > 1500 ? all + "... (" + std::to_string(text.size()) + " bytes)" : all;
}

// Shared by the child and its parent.
struct Progress {
  std::atomic<std::int64_t> next{0};  // the input that the child is at
  std::atomic<std::int64_t> taken{0};
  std::atomic<std::int64_t> refused{0};
  std::atomic<std::int64_t> findings{0};
};

void limit_memory() {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto now = static_cast<rlim_t>(pages) * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
  const rlimit limit{now + kMostMemoryBytes, now + kMostMemoryBytes};
  LOCKSTEP_CHECK(setrlimit(RLIMIT_AS, &limit) == 0, "a limit of memory");
  const rlimit no_core{0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
}

// Reads one input; says what is wrong with how the reader ended.
std::string try_input(const FuzzedReader& reader, const std::string& input, Progress& progress) {
  try {
    reader.read(input);
    ++progress.taken;
    return "";
  } catch (const Error& error) {
    ++progress.refused;
    return problem_of_refusal(error.failure() == Failure::internal, error.what());
  } catch (const std::bad_alloc&) {
    return "it takes more than " + std::to_string(kMostMemoryBytes >> 20) + " MiB";
  } catch (const std::exception& error) {
    return std::string("threw something other than a core::Error: ") + error.what();
  } catch (...) {  // must not leave the child, which would go on as a second test program
    return "threw something that is no exception of the standard library";
  }
}

std::string finding(const FuzzedReader& reader, const FuzzOptions& options, std::int64_t number,
                    const std::string& why) {
  return reader.name + ", seed " + std::to_string(options.seed) + ", input " + std::to_string(number) + ": " + why +
         "\n    input: " + shown(fuzzed_input(reader, options.seed, number)) + "\n";
}

// Writes findings to the pipe, and the number of each input into shared memory before it is read.
[[noreturn]] void run_child(const FuzzedReader& reader, const FuzzOptions& options, Progress& progress, int pipe_end) {
  limit_memory();
  for (; progress.next < options.inputs && progress.findings < static_cast<std::int64_t>(kMostFindings);
       ++progress.next) {
    const std::int64_t refused_before = progress.refused;
    std::string why = try_input(reader, fuzzed_input(reader, options.seed, progress.next), progress);
    const bool is_example = progress.next < static_cast<std::int64_t>(reader.examples.size());
    if (is_example && progress.refused > refused_before) why.insert(0, "an unchanged example is refused. ");
    if (why.empty()) continue;
    ++progress.findings;
    const std::string text = finding(reader, options, progress.next, shown(why)) + '\0';
    if (write(pipe_end, text.data(), text.size()) < 0) break;
  }
  _exit(0);
}

struct Ended {
  bool in_time = true;
  int status = 0;
};

// Waits for the child, and kills it if it stays at one input for too long.
Ended wait_for(pid_t child, const FuzzOptions& options, const Progress& progress) {
  using Clock = std::chrono::steady_clock;
  std::int64_t at = -1;
  Clock::time_point since = Clock::now();
  Ended end;
  while (waitpid(child, &end.status, WNOHANG) == 0) {
    if (progress.next != at) {
      at = progress.next;
      since = Clock::now();
    }
    if (end.in_time && std::chrono::duration<double>(Clock::now() - since).count() > options.longest_s) {
      end.in_time = false;
      kill(child, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return end;
}

// Findings that the child has written, each of which ends in a byte 0.
void read_findings(int pipe_end, std::vector<std::string>& findings) {
  std::string text;
  std::array<char, 4096> piece;
  for (ssize_t got = 0; (got = read(pipe_end, piece.data(), piece.size())) > 0;) {
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
  for (std::size_t begin = 0, end = 0; (end = text.find('\0', begin)) != std::string::npos; begin = end + 1) {
    findings.push_back(text.substr(begin, end - begin));
  }
}

}  // namespace

FuzzOptions fuzz_options() {
  FuzzOptions options;
  // NOLINTBEGIN(concurrency-mt-unsafe): read by a test's only thread
  if (const char* const inputs = std::getenv("LOCKSTEP_FUZZ_INPUTS")) options.inputs = std::stoll(inputs);
  if (const char* const seed = std::getenv("LOCKSTEP_FUZZ_SEED")) options.seed = std::stoull(seed);
  // NOLINTEND(concurrency-mt-unsafe)
  return options;
}

std::string fuzzed_input(const FuzzedReader& reader, std::uint64_t seed, std::int64_t number) {
  const auto examples = static_cast<std::int64_t>(reader.examples.size());
  if (number < examples) return reader.examples[static_cast<std::size_t>(number)];  // unchanged: it must be taken
  Random random(hash64(seed, static_cast<std::uint64_t>(number)));
  std::string text = reader.examples[random.below(reader.examples.size())];
  Mutator mutator(reader, random);
  for (std::uint64_t changes = random.below(4) + 1; changes > 0; --changes) mutator.change(text);
  return text;
}

std::string problem_of_refusal(bool is_ours, const std::string& message) {
  if (is_ours) return "a check of our own failed: " + message;
  if (message.empty()) return "the refusal says nothing";
  return message.find('\n') == std::string::npos ? "" : "the refusal is not one line of text: " + message;
}

FuzzResult fuzz(const FuzzedReader& reader, const FuzzOptions& options) {
  void* const shared =
      mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);  // zeros
  LOCKSTEP_CHECK(shared != MAP_FAILED, "shared memory");
  auto& progress = *new (shared) Progress;
  FuzzResult result;
  while (progress.next < options.inputs && result.findings.size() < kMostFindings) {
    std::array<int, 2> ends{};
    LOCKSTEP_CHECK(pipe(ends.data()) == 0, "a pipe");
    const pid_t child = fork();
    LOCKSTEP_CHECK(child >= 0, "a process");
    if (child == 0) run_child(reader, options, progress, ends[1]);
    close(ends[1]);
    const Ended end = wait_for(child, options, progress);
    read_findings(ends[0], result.findings);
    close(ends[0]);
    if (end.in_time && WIFEXITED(end.status) && WEXITSTATUS(end.status) == 0) break;
    result.findings.push_back(finding(
        reader, options, progress.next,
        !end.in_time              ? "it takes longer than " + std::to_string(options.longest_s) + " s"
        : WIFSIGNALED(end.status) ? "it ends the process by signal " + std::to_string(WTERMSIG(end.status))
                                  : "it ends the process with status " + std::to_string(WEXITSTATUS(end.status))));
    ++progress.next;
  }
  result.taken = progress.taken;
  result.refused = progress.refused;
  munmap(shared, sizeof(Progress));
  return result;
}

}  // namespace lockstep::core
