#include "bench/program/program.h"

#include "bench/program/progress.h"

#include <fmt/format.h>
#include <regex.h>
#include <CLI/CLI.hpp>
#include <array>
#include <cctype>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/output_file.h"
#include "core/provenance.h"
#include "core/ranks.h"

namespace lockstep::program {
std::function<bool(const std::string&)> name_filter(const std::string& expression) {
  const auto compiled = std::make_unique<regex_t>();
  if (const int error = regcomp(compiled.get(), expression.c_str(), REG_EXTENDED | REG_NOSUB); error != 0) {
    std::array<char, 200> reason{};
    regerror(error, compiled.get(), reason.data(), reason.size());
    throw core::usage_error(
        core::one_line(fmt::format("{}: {}; allowed: a regular expression", expression, reason.data())));
  }
  const std::shared_ptr<regex_t> filter(new regex_t(*compiled), [](regex_t* done) {
    regfree(done);
    delete done;
  });
  return [filter](const std::string& name) { return regexec(filter.get(), name.c_str(), 0, nullptr, 0) == 0; };
}

std::string version_text(const std::string& program) {
  const core::Source source = core::source();
  const core::Build build = core::build();
  return fmt::format("{} (Lockstep) {}\nrevision {}{}\n{}, {}, {}\n", program, build.version, source.revision,
                     source.dirty.value_or(false) ? ", with local changes" : "",
                     build.compiler.value_or("unknown compiler"), build.type.value_or("no build type"),
                     build.flags.value_or("no flags"));
}

namespace {

// A flag as it was declared.
struct Declared {
  std::string names;  // "-b,--minbytes"
  bool takes_value;
  std::string default_text;
  std::string meaning;
  std::string group;
};

std::string name_of_program(const char* word) {
  return std::filesystem::path(word).filename().string();
}

}  // namespace

struct CommandLine::State {
  explicit State(std::string what) : purpose(std::move(what)), app(purpose) {}

  std::string help() {
    std::string text = purpose;
    if (!commands.empty()) text += "\nCommands, each with its own --help:";
    for (const auto& [name, meaning] : commands) text += fmt::format("\n  {} {}: {}", program, name, meaning);
    app.description(text);
    return app.help();
  }

  // Fields as cmake/manuals.py reads them.
  std::string described() const {
    nlohmann::ordered_json json = {{"program", program}, {"version", core::build().version}};
    const std::size_t colon = purpose.find(": ");
    const bool says_program = purpose.starts_with(program) && colon != std::string::npos;
    json["purpose"] = says_program ? purpose.substr(colon + 2) : purpose;
    json["commands"] = nlohmann::json::array();
    for (const auto& [name, meaning] : commands) json["commands"].push_back({{"name", name}, {"meaning", meaning}});
    json["flags"] = nlohmann::json::array();
    for (const Declared& flag : flags) {
      json["flags"].push_back({{"names", flag.names},
                               {"takes_value", flag.takes_value},
                               {"default", flag.default_text},
                               {"meaning", flag.meaning},
                               {"group", flag.group}});
    }
    return json.dump(1) + "\n";
  }

  std::string purpose;
  CLI::App app;
  std::string program;
  std::vector<std::pair<std::string, std::string>> commands;  // name, meaning
  std::vector<Declared> flags{{"-h,--help", false, "", "print this help and exit", "Options"},
                              {"--version", false, "", "print version and git revision and exit", "Options"}};
  bool version = false;
  bool describe = false;
  std::map<std::string, std::string> texts;  // CLI11 holds references into it
  std::map<std::string, CLI::Option*> options;
};

CommandLine::CommandLine(const std::string& purpose) : state_(std::make_unique<State>(purpose)) {
  state_->app.allow_extras();
  state_->app.get_formatter()->column_width(32);
  const Declared& help = state_->flags[0];
  const Declared& version = state_->flags[1];
  state_->app.set_help_flag(help.names, help.meaning);
  state_->app.add_flag(version.names, state_->version, version.meaning);
  state_->app.add_flag("--describe", state_->describe)->group("");  // for programs, so that no help shows it
}

CommandLine::~CommandLine() = default;

void CommandLine::add(const std::string& names, const std::string& default_text, const std::string& meaning,
                      const char* group) {
  const std::string help = default_text.empty() ? meaning : fmt::format("{} [{}]", meaning, default_text);
  std::string& text = state_->texts[names];
  state_->flags.push_back({names, true, default_text, meaning, group});
  state_->options[names] = state_->app.add_option(names, text, help)
                               ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
                               ->type_name("VALUE")
                               ->group(group);
}

void CommandLine::add_switch(const std::string& name, bool& value, const std::string& meaning, const char* group) {
  state_->flags.push_back({name, false, "", meaning, group});
  state_->app.add_flag(name, value, meaning)->group(group);
}

void CommandLine::add_command(const std::string& name, const std::string& meaning) {
  state_->commands.emplace_back(name, meaning);
}

void CommandLine::parse(int argc, const char* const* argv) {
  state_->program = name_of_program(argv[0]);
  try {
    state_->app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw HelpRequested{{state_->help()}};
  } catch (const CLI::ParseError& error) {
    throw core::usage_error(core::one_line(fmt::format("{}; allowed: what --help lists", error.what())));
  }
  if (state_->version) throw TextRequested{version_text(state_->program)};
  if (state_->describe) throw TextRequested{state_->described()};
  const std::vector<std::string> unknown = state_->app.remaining();
  if (unknown.empty()) return;
  std::vector<std::string> flags;
  for (const CLI::Option* option : state_->app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  const std::string nearest =
      core::nearest_text(unknown.front(), std::vector<std::string_view>(flags.begin(), flags.end()));
  throw core::usage_error(
      core::one_line(fmt::format("unknown argument '{}'{}; allowed: what --help lists", unknown.front(), nearest)));
}

std::optional<FlagValue> CommandLine::value(const std::string& names) const {
  if (state_->options.at(names)->count() == 0) return std::nullopt;
  return FlagValue{names, state_->texts.at(names)};
}

namespace {

// A line of a message, which may quote anything from a file or a flag: control characters are shown by their numbers
// (\x1b), and the middle of a long line is cut out, because its end states what is allowed.
std::string printable(const std::string& line) {
  constexpr std::size_t kBegin = 1000;
  constexpr std::size_t kEnd = 1000;
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string shown;
  for (const char c : line) {
    const auto code = static_cast<unsigned char>(c);
    if (std::iscntrl(code) == 0) {
      shown += c;
    } else {
      shown.append("\\x").append(1, kDigits[code >> 4U]).append(1, kDigits[code & 15U]);
    }
  }
  if (shown.size() <= kBegin + kEnd) return shown;
  const std::string left_out = " ... (" + std::to_string(shown.size() - kBegin - kEnd) + " bytes) ... ";
  return shown.substr(0, kBegin) + left_out + shown.substr(shown.size() - kEnd);
}

// All ranks of mpirun refuse a wrong flag alike, and one line is enough: rank 0 prints it, and mpirun ends the others
// within a second or a few on a busy machine. What only another rank refuses, such as a file that its host lacks, is
// printed after a pause.
int report(const std::string& program, const char* what, int status) {
  constexpr auto kPause = std::chrono::seconds(5);
  const int rank = core::started_rank();
  if (rank > 0) std::this_thread::sleep_for(kPause);
  std::fflush(stdout);
  std::istringstream lines(program + ": " + (rank > 0 ? "rank " + std::to_string(rank) + ": " : "") + what);
  for (std::string line; std::getline(lines, line);) std::fprintf(stderr, "%s\n", printable(line).c_str());
  return status;
}

int run_or_print(const std::function<int()>& run) {
  try {
    return run();
  } catch (const TextRequested& requested) {
    if (core::started_rank() == 0) to_stdout(requested.text);
    return 0;
  }
}

}  // namespace

void Invocation::set_command(int argc, const char* const* argv) {
  program = std::filesystem::path(argv[0]).filename().string();
  command.assign(argv, argv + argc);
  command.front() = program;
}

void to_stdout(const std::string& text) {
  if (std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0) return;
  throw core::Error(core::Failure::internal, "cannot write standard output: " + core::system_reason(errno));
}

void write_file(const std::string& path, const std::string& text) {
  core::AtomicFile file(path);
  file.write(text);
  file.commit();
}

void check_writable(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) {
    if (!path.empty()) const core::AtomicFile writable(path);
  }
}

void check_single(const char* flag, const std::string& path, std::size_t rows, const char* name) {
  if (path.empty() || rows == 1) return;
  throw core::usage_error(std::string(flag) + " " + path + ": there are " + std::to_string(rows) + " " + name +
                          "; allowed: one");
}

void refuse_peers(const std::string& why, const std::string& allowed) {
  if (const int processes = core::started_processes(); processes > 1) {
    throw core::usage_error(why + ": mpirun has started " + std::to_string(processes) +
                            " processes, each of which would do all of this; allowed: " + allowed);
  }
}

int exit_status_of(const std::string& program, const std::function<int()>& run) {
  std::signal(SIGXFSZ, SIG_IGN);  // a write beyond `ulimit -f` fails with a reason instead of ending the program
  const Interruption interruption(program);
  try {
    return run_or_print(run);
  } catch (const core::Error& error) {
    return report(program, error.what(), error.exit_status());
  } catch (const std::exception& error) {
    return report(program, error.what(), static_cast<int>(core::Failure::internal));
  }
}

core::LinkRecord link_record(const transports::LinkSpec& link) {
  return {link.latency_us, link.gbps > 0 ? std::optional(link.gbps) : std::nullopt};
}

std::string share_text(const core::Estimate& share) {
  if (!share.is_known(1)) return "undecided";
  if (share.half() == 0) return fmt::format("{:.2f}", 100 * share.value);
  return fmt::format("{:.0f}+-{:.0f}", 100 * share.value, 100 * share.half());
}

std::string emulated_text(const transports::LinkSpec& link) {
  return fmt::format("links of {:g} us and {:g} GB/s are EMULATED in wall-clock time", link.latency_us, link.gbps);
}

}  // namespace lockstep::program
