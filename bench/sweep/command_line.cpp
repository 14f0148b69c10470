#include "bench/sweep/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <map>
#include <vector>

namespace lockstep::sweep {

struct CommandLine::State {
  explicit State(const std::string& purpose) : app(purpose) {}

  CLI::App app;
  std::map<std::string, std::string> texts;  // CLI11 holds references into it
  std::map<std::string, CLI::Option*> options;
};

CommandLine::CommandLine(const std::string& purpose) : state_(std::make_unique<State>(purpose)) {
  state_->app.allow_extras();
  state_->app.get_formatter()->column_width(32);
}

CommandLine::~CommandLine() = default;

void CommandLine::add(const std::string& names, const std::string& default_text, const std::string& meaning,
                      const char* group) {
  const std::string help = default_text.empty() ? meaning : fmt::format("{} [{}]", meaning, default_text);
  std::string& text = state_->texts[names];
  state_->options[names] = state_->app.add_option(names, text, help)
                               ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
                               ->type_name("VALUE")
                               ->group(group);
}

void CommandLine::add_switch(const std::string& name, bool& value, const std::string& meaning, const char* group) {
  state_->app.add_flag(name, value, meaning)->group(group);
}

std::optional<HelpRequested> CommandLine::parse(int argc, const char* const* argv) {
  try {
    state_->app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return HelpRequested{state_->app.help()};
  } catch (const CLI::ParseError& error) {
    throw core::usage_error(fmt::format("{}; allowed: what --help lists", error.what()));
  }
  const std::vector<std::string> unknown = state_->app.remaining();
  if (unknown.empty()) return std::nullopt;
  throw core::usage_error(fmt::format("unknown argument '{}'; allowed: what --help lists", unknown.front()));
}

std::optional<FlagValue> CommandLine::value(const std::string& names) const {
  if (state_->options.at(names)->count() == 0) return std::nullopt;
  return FlagValue{names, state_->texts.at(names)};
}

}  // namespace lockstep::sweep
