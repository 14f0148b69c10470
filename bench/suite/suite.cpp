#include "bench/suite/suite.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>
#include <utility>
#include <variant>

#include "bench/parallel_layers/program.h"
#include "bench/pipeline/overlap_program.h"
#include "bench/pipeline/program.h"
#include "bench/scaling/program.h"
#include "bench/simulate/program.h"
#include "bench/sweep/programs.h"
#include "bench/sweep/sweep.h"
#include "bench/trainer/program.h"
#include "core/error.h"
#include "core/size.h"
#include "core/wait.h"

namespace lockstep::suite {
namespace {

using sweep::SweepFlags;

std::vector<std::string> words_of(const std::string& command) {
  std::istringstream stream(command);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

// How far the suite is: a line that is written over on a terminal, else a line a sweep.
class Progress {
 public:
  Progress(std::size_t lines, bool shown) : lines_(lines), shown_(shown), terminal_(isatty(STDERR_FILENO) == 1) {}

  void begin(std::size_t index, const SuiteLine& line) {
    index_ = index;
    name_ = line.name;
    if (shown_ && !terminal_) std::fprintf(stderr, "%s %s\n", position().c_str(), name_.c_str());
  }
  void row(int num_ranks, const sweep::Comparison& comparison) {
    if (!shown_ || !terminal_) return;
    const auto& result = comparison.out_of_place;
    const std::string text = fmt::format("{} {}: {} ranks, {}, {}", position(), name_, num_ranks,
                                         core::format_size(result.bytes), result.algorithm);
    std::fprintf(stderr, "\r\033[K%s", text.substr(0, 100).c_str());
  }
  void end() const {
    if (shown_ && terminal_) std::fprintf(stderr, "\r\033[K");
  }

 private:
  std::string position() const {
    const auto seconds = core::us_between(start_, core::Clock::now()) / 1e6;
    return fmt::format("[{}/{}] {:4.0f} s", index_ + 1, lines_, seconds);
  }

  const std::size_t lines_;
  const bool shown_;
  const bool terminal_;
  const core::Clock::time_point start_ = core::Clock::now();
  std::size_t index_ = 0;
  std::string name_;
};

// A line that has been parsed: what it runs.
struct Job {
  std::function<int(const std::string& json_file, double time_budget_s)> run;
  double weight = 1;
};

template <class Flags>
Flags flags_or_throw(const SuiteLine& line, std::variant<Flags, sweep::HelpRequested> parsed) {
  if (std::holds_alternative<Flags>(parsed)) return std::get<Flags>(std::move(parsed));
  throw core::usage_error(fmt::format("suite line '{}': --help has no place in a suite", line.name));
}

void print_nothing(const std::string& /*text*/) {}

Job sweep_job(const SuiteLine& line, SweepFlags flags, Progress& progress) {
  const double weight = line.weight * static_cast<double>(flags.ranks.size());
  const auto run = [flags = std::move(flags), &progress](const std::string& json_file, double time_budget_s) mutable {
    flags.json_file = json_file;
    flags.time_budget_s = time_budget_s;
    sweep::SweepOutput output;
    output.print = print_nothing;
    output.measured = [&](const backends::Backend&, int num_ranks, const sweep::Comparison& comparison) {
      progress.row(num_ranks, comparison);
    };
    return sweep::run_sweep(flags, sweep::read_environment(flags), nullptr, output);
  };
  return {run, weight};
}

// Programs that take the time that their flags say, whatever the budget.
template <class Flags, class Program>
Job fixed_job(const SuiteLine& line, Flags flags, Program program) {
  const auto run = [flags = std::move(flags), program](const std::string& json_file, double /*time_budget_s*/) mutable {
    flags.json_file = json_file;
    return program(flags, print_nothing);
  };
  return {run, line.weight};
}

int run_training(const mini_train::TrainFlags& flags, const pipeline::Print& print) {
  return mini_train::run_mini_train(flags, print, nullptr);
}

Job scaling_job(const SuiteLine& line, scaling::ScalingFlags flags) {
  const auto run = [flags = std::move(flags)](const std::string& json_file, double time_budget_s) mutable {
    flags.json_file = json_file;
    flags.effort.seconds = std::min(flags.effort.seconds, time_budget_s);
    return scaling::run_scaling(flags, print_nothing);
  };
  return {run, line.weight};
}

Job parse_line(const SuiteLine& line, Progress& progress) {
  const std::vector<std::string> words = words_of(line.command);
  if (words.empty()) throw core::usage_error(fmt::format("suite line '{}': no command", line.name));
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  const auto argc = static_cast<int>(argv.size());
  if (words.front() == "pipeline_perf") {
    return fixed_job(line, flags_or_throw(line, pipeline::parse_pipeline_flags(argc, argv.data())),
                     pipeline::run_pipeline);
  }
  if (words.front() == "overlap_perf") {
    return fixed_job(line, flags_or_throw(line, pipeline::parse_overlap_flags(argc, argv.data())),
                     pipeline::run_overlaps);
  }
  if (words.front() == "simulate") {
    return fixed_job(line, flags_or_throw(line, simulate::parse_simulate_flags(argc, argv.data())),
                     simulate::run_simulate);
  }
  if (words.front() == "mini_train") {
    return fixed_job(line, flags_or_throw(line, mini_train::parse_train_flags(argc, argv.data())), run_training);
  }
  if (words.front() == "tp_linear_bench") {
    return fixed_job(line, flags_or_throw(line, layer_bench::parse_layer_flags(argc, argv.data())),
                     layer_bench::run_layers);
  }
  if (words.front() == "scaling") {
    return scaling_job(line, flags_or_throw(line, scaling::parse_scaling_flags(argc, argv.data())));
  }
  const auto kind = sweep::kind_of_program(words.front());
  return sweep_job(line, flags_or_throw(line, sweep::parse_sweep_flags(kind, argc, argv.data())), progress);
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

int run_suite(const Suite& suite, const SuiteOptions& options) {
  Progress progress(suite.size(), options.show_progress);
  std::vector<Job> jobs;
  double weights = 0;
  for (const SuiteLine& line : suite) weights += jobs.emplace_back(parse_line(line, progress)).weight;
  std::error_code failed;
  std::filesystem::create_directories(options.folder, failed);
  if (failed) throw core::usage_error(fmt::format("--out {}: cannot be made: {}", options.folder, failed.message()));

  int worst = 0;
  for (std::size_t i = 0; i < suite.size(); ++i) {
    progress.begin(i, suite[i]);
    const std::string json_file = fmt::format("{}/{}.jsonl", options.folder, suite[i].name);
    worst = std::max(worst, jobs[i].run(json_file, options.time_budget_s * jobs[i].weight / weights));
  }
  progress.end();
  return worst;
}

}  // namespace lockstep::suite
