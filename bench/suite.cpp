// suite: runs a list of this project's programs and keeps their records. Example: suite --suite quick --out out/records
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include "bench/program/program.h"
#include "bench/program/progress.h"
#include "core/error.h"
#include "core/options.h"
#include "core/output_file.h"
#include "core/wait.h"

namespace lockstep::suite {

// The texts of bench/suite/quick.suite and claims.suite, from sources that CMakeLists.txt makes.
std::string_view embedded_quick_suite();
std::string_view embedded_claims_suite();

namespace {

// A suite: command lines of this project's programs, run one after another as child processes, with a record file each.

// A program in this program's folder and its flags: "all_reduce_perf --ranks 2,4,8 --algo ring,two_shot --time-budget
// {seconds}". {seconds} is replaced by the line's share of the suite's time; for a line without it, the weight only
// reserves time.
struct SuiteLine {
  std::string name;  // name of its record file
  double weight;
  std::string command;
};

using Suite = std::vector<SuiteLine>;

struct SuiteOptions {
  std::string programs;                // folder of the programs
  std::string folder = "out/records";  // NAME.jsonl: a line's records; NAME.txt: its output
  double time_budget_s = 120;          // for the whole suite
  double line_timeout_s = 300;         // deadline of each line's program
};

// Runs a program as a child process with a deadline.

struct Ended {
  int status = 0;  // exit status; 128 + signal number, as in shells, if a signal ended the process
  std::string
      how;  // "ended with status 7", "was ended by signal 11 (Segmentation fault)", "was killed, as it took ..."
};

constexpr int kNotStarted = 127;  // the shells' exit status for it

class File {
 public:
  explicit File(int descriptor) : descriptor_(descriptor) {}
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~File() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

core::Error failed(const std::string& what) {
  return {core::Failure::internal, what + ": " + std::strerror(errno)};
}

// A pipe whose write end only the child holds: when it ends, the parent reads end-of-file immediately.
std::pair<File, File> life_line() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) throw failed("pipe2");
  return {File(ends[0]), File(ends[1])};
}

// Runs between fork and exec: only async-signal-safe calls.
[[noreturn]] void become(char* const* argv, int output, int life, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(kNotStarted);
  sigset_t none;  // this process waits for Ctrl-C elsewhere (bench/program/progress.h)
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  fcntl(life, F_SETFD, 0);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  execv(argv[0], argv);
  _exit(kNotStarted);
}

// False if the deadline passes first.
bool wait_for_end(const File& life, core::Deadline deadline) {
  pollfd end{life.descriptor(), POLLIN, 0};
  while (!deadline.passed()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.at() - core::Clock::now());
    const auto wait_ms = std::clamp<std::int64_t>(left.count(), 0, 60'000);
    if (poll(&end, 1, static_cast<int>(wait_ms)) > 0) return true;
  }
  return false;
}

Ended ended(int status) {
  if (WIFEXITED(status)) return {WEXITSTATUS(status), "ended with status " + std::to_string(WEXITSTATUS(status))};
  const int number = WTERMSIG(status);
  return {128 + number, "was ended by signal " + std::to_string(number) + " (" + strsignal(number) + ")"};
}

// Runs words[0] with the words as its arguments and its output in `output_file`, which is replaced. The child is killed
// at the deadline, and when this process ends. Throws an Error if the file cannot be written or the program cannot be
// started.
Ended run_process(const std::vector<std::string>& words, const std::string& output_file, core::Deadline deadline) {
  const File output(open(output_file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (output.descriptor() < 0) throw failed(output_file + ": cannot be written");
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);

  auto [read_end, write_end] = life_line();
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw failed("cannot fork");
  if (child == 0) become(argv.data(), output.descriptor(), write_end.descriptor(), parent);
  { const File closed(std::move(write_end)); }

  const bool in_time = wait_for_end(read_end, deadline);
  if (!in_time) kill(child, SIGKILL);
  int status = 0;
  if (waitpid(child, &status, 0) != child) throw failed("waitpid");
  if (!in_time) return {static_cast<int>(core::Failure::timeout), "was killed at its deadline"};
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotStarted) {
    throw core::Error(core::Failure::internal, words[0] + " cannot be started");
  }
  return ended(status);
}

constexpr const char* kShare = "{seconds}";
constexpr double kLeastShare_s = 0.1;

std::vector<std::string> words_of(const std::string& command) {
  std::istringstream stream(command);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// The path of a suite line's program, and its flags.
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

std::string last_line_of(const std::string& file) {
  std::ifstream stream(file);
  std::string last;
  for (std::string text; std::getline(stream, text);) {
    if (!text.empty()) last = text;
  }
  return last;
}

// Adds how a program ended to its output. Returns why that cannot be written, empty if it was: on a full disk the
// output lacks the program's own message.
std::string why_not_written(const std::string& file, const std::string& how) {
  std::ofstream stream(file, std::ios::app);
  const bool written = static_cast<bool>(stream << "suite: " << how << std::endl);  // flushed, to know it now
  return written ? "" : file + ": " + core::system_reason(errno);
}

// A line's share of the remaining seconds, by its weight among the remaining lines.
double share_of(const Suite& suite, std::size_t index, double seconds_left) {
  double weights = 0;
  for (std::size_t i = index; i < suite.size(); ++i) weights += suite[i].weight;
  return std::max(seconds_left * suite[index].weight / weights, kLeastShare_s);
}

int run_line(const SuiteLine& line, std::vector<std::string> words, double share_s, const SuiteOptions& options,
             const program::Print& print) {
  const std::string stem = options.folder + "/" + line.name;
  std::filesystem::remove(stem + ".jsonl");  // left by an earlier run
  for (std::string& word : words) {
    if (word == kShare) word = fmt::format("{:.1f}", share_s);
  }
  words.insert(words.end(), {"--json", stem + ".jsonl"});
  const std::chrono::duration<double> timeout(options.line_timeout_s);
  const auto deadline = core::Deadline::after(std::chrono::duration_cast<std::chrono::nanoseconds>(timeout));
  const Ended end = run_process(words, stem + ".txt", deadline);
  if (end.status == 0) return 0;
  const std::string last = last_line_of(stem + ".txt");
  const std::string why = why_not_written(stem + ".txt", end.how);
  print(fmt::format("suite: {}: {}; '{}' (full output: {}.txt): {}\n", line.name, end.how, line.command, stem,
                    why.empty() ? last : why));
  return end.status;
}

// A real text if Debian's license file exists, else the synthetic one.
std::string data_words() {
  const std::string licence = "/usr/share/common-licenses/GPL-3";
  std::error_code none;
  return std::filesystem::is_regular_file(licence, none) ? "--data " + licence : "";
}

// Parses a suite; errors name `path`.
Suite read_suite(std::istream& file, const std::string& path) {
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

// The suite of ci/quickstart.sh.
Suite quick_suite() {
  std::string text(embedded_quick_suite());
  constexpr std::string_view kData = "{data}";
  text.replace(text.rfind(kData), kData.size(), data_words());
  std::istringstream lines(text);
  return read_suite(lines, "quick.suite");
}

// The lines of claims.suite, whose records decide the claims of claims.json (docs/claims.md).
Suite claims_suite() {
  std::istringstream text{std::string(embedded_claims_suite())};
  return read_suite(text, "claims.suite");
}

// Reads a file of lines "NAME WEIGHT COMMAND"; '#' begins a comment. Errors name the file, the line and what is
// allowed.
Suite load_suite(const std::string& path) {
  std::istringstream text(core::text_of_file(path, "quick, claims, or a file", "--suite " + path));
  return read_suite(text, path);
}

// The suite as the text of such a file.
std::string text_of(const Suite& suite) {
  std::string text;
  for (const SuiteLine& line : suite) text += fmt::format("{} {} {}\n", line.name, line.weight, line.command);
  return text;
}

// Returns the worst exit status of all lines. Failed lines are named on stderr, and the others still run. Throws a
// usage Error before the first line runs if a line has no command or its program does not exist.
int run_suite(const Suite& suite, const SuiteOptions& options) {
  std::vector<std::vector<std::string>> commands;
  for (const SuiteLine& line : suite) commands.push_back(words_of(line, options.programs));
  const core::FolderLock lock("--out", options.folder);

  const bool rewrites = isatty(STDERR_FILENO) == 1;  // else a line of text per line of the suite
  program::Progress progress("lines", suite.size());
  const program::Print print = progress.around([](const std::string& text) { std::fputs(text.c_str(), stderr); });
  const auto begin = core::Clock::now();
  const auto seconds = [&] { return core::us_between(begin, core::Clock::now()) / 1e6; };
  int worst = 0;
  for (std::size_t i = 0; i < suite.size(); ++i) {
    progress.done(i, suite.size(), suite[i].name);
    if (!rewrites) print(fmt::format("[{}/{}] {:4.0f} s {}\n", i + 1, suite.size(), seconds(), suite[i].name));
    const double share_s = share_of(suite, i, options.time_budget_s - seconds());
    worst = std::max(worst, run_line(suite[i], commands[i], share_s, options, print));
  }
  print(fmt::format("{} lines in {:.0f} s\n", suite.size(), seconds()));
  return worst;
}

// The command line.

using program::FlagValue;

struct SuiteFlags {
  std::string suite = "quick";
  bool list = false;
  SuiteOptions options;
};
using Flag = program::FlagOf<SuiteFlags>;

constexpr double kLongestS = 1e9;

const std::array kFlags{
    Flag{"--suite", "quick", "quick; claims (docs/claims.md); or a file of lines NAME WEIGHT COMMAND (see --list)",
         [](SuiteFlags& f, const FlagValue& v) { f.suite = file_name(v); }},
    Flag{"--out", "out/records", "folder of the record files",
         [](SuiteFlags& f, const FlagValue& v) { f.options.folder = file_name(v); }},
    Flag{"--time-budget", "120", "seconds for the whole suite, shared among the lines with {seconds} in them",
         [](SuiteFlags& f, const FlagValue& v) { f.options.time_budget_s = v.number(0, kLongestS); }},
    Flag{"--timeout", "300", "seconds after which a line's program is killed",
         [](SuiteFlags& f, const FlagValue& v) { f.options.line_timeout_s = v.number(0, kLongestS); }},
};

int run(int argc, char** argv) {
  SuiteFlags flags;
  flags.options.programs = std::filesystem::read_symlink("/proc/self/exe").parent_path().string();
  program::CommandLine line("Runs a list of the programs in its own folder, in sequence, and keeps their records");
  declare_all(line, kFlags, "Options");
  line.add_switch("--list", flags.list, "print the suite as such a file and exit", "Options");
  line.parse(argc, argv);
  read_all(line, kFlags, flags);
  program::refuse_peers("programs run sequentially", "no mpirun");
  const auto suite = flags.suite == "quick"    ? quick_suite()
                     : flags.suite == "claims" ? claims_suite()
                                               : load_suite(flags.suite);
  if (!flags.list) return run_suite(suite, flags.options);
  program::to_stdout(text_of(suite));
  return 0;
}

}  // namespace
}  // namespace lockstep::suite

int main(int argc, char** argv) {
  return lockstep::program::exit_status_of("suite", [&] { return lockstep::suite::run(argc, argv); });
}
