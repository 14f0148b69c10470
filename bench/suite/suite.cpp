#include "bench/suite/suite.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/suite/process.h"
#include "core/error.h"
#include "core/wait.h"

namespace lockstep::suite {
namespace {

constexpr const char* kShare = "{seconds}";
constexpr double kLeastShare_s = 0.1;

std::vector<std::string> words_of(const std::string& command) {
  std::istringstream stream(command);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// The path of a line's program, and its flags.
std::vector<std::string> words_of(const SuiteLine& line, const std::string& programs) {
  std::vector<std::string> words = words_of(line.command);
  if (words.empty()) throw core::usage_error(fmt::format("suite line '{}': no command", line.name));
  const std::string path = programs + "/" + words.front();
  if (words.front().find('/') != std::string::npos || access(path.c_str(), X_OK) != 0) {
    throw core::usage_error(
        fmt::format("suite line '{}': no program '{}'; allowed: those of {}", line.name, words.front(), programs));
  }
  words.front() = path;
  return words;
}

// How far the suite is: a line that is written over on a terminal, else a line for each of the suite's.
class Progress {
 public:
  explicit Progress(std::size_t lines) : lines_(lines) {}

  double seconds() const { return core::us_between(start_, core::Clock::now()) / 1e6; }
  void begin(const SuiteLine& line) {
    std::fprintf(stderr, "%s[%zu/%zu] %4.0f s %s%s", terminal_ ? "\r\033[K" : "", ++index_, lines_, seconds(),
                 line.name.c_str(), terminal_ ? "" : "\n");
  }
  void tell(const std::string& text) const {
    std::fprintf(stderr, "%s%s\n", terminal_ ? "\r\033[K" : "", text.c_str());
  }
  void end() const { tell(fmt::format("{} lines in {:.0f} s", lines_, seconds())); }

 private:
  const std::size_t lines_;
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  const core::Clock::time_point start_ = core::Clock::now();
  std::size_t index_ = 0;
};

std::string last_line_of(const std::string& file) {
  std::ifstream stream(file);
  std::string last;
  for (std::string text; std::getline(stream, text);) {
    if (!text.empty()) last = text;
  }
  return last;
}

// A line's share of the seconds that are left, by its weight among those of the lines that are left.
double share_of(const Suite& suite, std::size_t index, double seconds_left) {
  double weights = 0;
  for (std::size_t i = index; i < suite.size(); ++i) weights += suite[i].weight;
  return std::max(seconds_left * suite[index].weight / weights, kLeastShare_s);
}

int run_line(const SuiteLine& line, std::vector<std::string> words, double share_s, const SuiteOptions& options,
             const Progress& progress) {
  const std::string stem = options.folder + "/" + line.name;
  std::filesystem::remove(stem + ".jsonl");  // of an earlier run
  for (std::string& word : words) {
    if (word == kShare) word = fmt::format("{:.1f}", share_s);
  }
  words.insert(words.end(), {"--json", stem + ".jsonl"});
  const std::chrono::duration<double> timeout(options.line_timeout_s);
  const auto deadline = core::Deadline::after(std::chrono::duration_cast<std::chrono::nanoseconds>(timeout));
  const Ended end = run_process(words, stem + ".txt", deadline);
  if (end.status != 0) {
    progress.tell(fmt::format("suite: {}: {}; '{}' (all of it: {}.txt): {}", line.name, end.how, line.command, stem,
                              last_line_of(stem + ".txt")));
  }
  return end.status;
}

}  // namespace

Suite load_suite(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw core::usage_error(fmt::format("--suite {}: cannot be read; allowed: quick, or a file", path));
  Suite suite;
  std::string text;
  for (int number = 1; std::getline(file, text); ++number) {
    text = text.substr(0, text.find('#'));
    std::istringstream stream(text);
    SuiteLine line;
    if (!(stream >> line.name)) continue;
    if (!(stream >> line.weight) || line.weight <= 0 || !std::getline(stream >> std::ws, line.command)) {
      throw core::usage_error(fmt::format("{}:{}: allowed: NAME WEIGHT COMMAND, the weight above 0", path, number));
    }
    suite.push_back(line);
  }
  if (suite.empty()) throw core::usage_error(fmt::format("{}: holds no line; allowed: NAME WEIGHT COMMAND", path));
  return suite;
}

std::string text_of(const Suite& suite) {
  std::string text;
  for (const SuiteLine& line : suite) text += fmt::format("{} {} {}\n", line.name, line.weight, line.command);
  return text;
}

int run_suite(const Suite& suite, const SuiteOptions& options) {
  std::vector<std::vector<std::string>> commands;
  for (const SuiteLine& line : suite) commands.push_back(words_of(line, options.programs));
  std::error_code failed;
  std::filesystem::create_directories(options.folder, failed);
  if (failed) throw core::usage_error(fmt::format("--out {}: cannot be made: {}", options.folder, failed.message()));

  Progress progress(suite.size());
  int worst = 0;
  for (std::size_t i = 0; i < suite.size(); ++i) {
    progress.begin(suite[i]);
    const double share_s = share_of(suite, i, options.time_budget_s - progress.seconds());
    worst = std::max(worst, run_line(suite[i], commands[i], share_s, options, progress));
  }
  progress.end();
  return worst;
}

}  // namespace lockstep::suite
