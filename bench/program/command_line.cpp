#include "bench/program/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

#include "core/nearest.h"
#include "core/size.h"

namespace lockstep::program {
namespace {

// Returns the whole text as a number, or nothing.
template <typename T>
std::optional<T> whole(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A value may hold line ends; a refusal that quotes it is still one line.
std::string one_line(std::string text) {
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at)) text.replace(at, 1, "\\n");
  return text;
}

}  // namespace

core::Error FlagValue::refused(const std::string& what, const std::string& allowed) const {
  return core::usage_error(one_line(fmt::format("{} {}: {}; allowed: {}", names, text, what, allowed)));
}

core::Error FlagValue::refused(const core::Error& error) const {
  const std::string why = one_line(error.what());
  if (why.starts_with(names + " ")) return {error.failure(), why};
  return core::usage_error(one_line(fmt::format("{} {}: ", names, text)) + why);
}

std::int64_t FlagValue::integer(std::int64_t min, std::int64_t max) const {
  const std::string allowed = fmt::format("an integer from {} to {}", min, max);
  const auto value = whole<std::int64_t>(text);
  if (!value) throw refused("not an integer", allowed);
  if (*value < min || *value > max) throw refused("out of range", allowed);
  return *value;
}

double FlagValue::number(double min, double max) const {
  const std::string allowed = fmt::format("a number above {:g}, at most {:g}", min, max);
  const auto value = whole<double>(text);
  if (!value) throw refused("not a number", allowed);
  if (!(*value > min && *value <= max)) throw refused("out of range", allowed);
  return *value;
}

double FlagValue::number_from(double min, double max) const {
  const std::string allowed = fmt::format("a number from {:g} to {:g}", min, max);
  const auto value = whole<double>(text);
  if (!value) throw refused("not a number", allowed);
  if (!(*value >= min && *value <= max)) throw refused("out of range", allowed);
  return *value;
}

bool FlagValue::zero_or_one() const {
  if (text != "0" && text != "1") throw refused("not a switch", "0 or 1");
  return text == "1";
}

std::int64_t FlagValue::size_bytes() const {
  const auto size = core::parse_size(text);
  if (!size) throw refused("not a size", "bytes, or a number with K, M or G (1024-based)");
  return *size;
}

std::vector<FlagValue> FlagValue::list(char between) const {
  std::vector<FlagValue> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(between, begin), text.size());
    if (end == begin) throw refused("an empty item", std::string("items with a single ") + between + " between them");
    parts.push_back({names, text.substr(begin, end - begin)});
    begin = end + 1;
  }
  return parts;
}

int integer(const FlagValue& value, std::int64_t min, std::int64_t max) {
  return static_cast<int>(value.integer(min, max));
}

std::vector<int> integer_list(const FlagValue& value, std::int64_t min, std::int64_t max) {
  std::vector<int> integers;
  for (const FlagValue& part : value.list()) integers.push_back(integer(part, min, max));
  return integers;
}

std::vector<std::string> text_list(const FlagValue& value, char between) {
  std::vector<std::string> texts;
  for (const FlagValue& part : value.list(between)) texts.push_back(part.text);
  return texts;
}

std::string file_name(const FlagValue& value) {
  if (value.text.empty()) throw value.refused("no name", "the name of a file");
  return value.text;
}

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

void CommandLine::parse(int argc, const char* const* argv) {
  try {
    state_->app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    throw HelpRequested{state_->app.help()};
  } catch (const CLI::ParseError& error) {
    throw core::usage_error(one_line(fmt::format("{}; allowed: what --help lists", error.what())));
  }
  const std::vector<std::string> unknown = state_->app.remaining();
  if (unknown.empty()) return;
  std::vector<std::string> flags;
  for (const CLI::Option* option : state_->app.get_options()) {
    for (const std::string& name : option->get_lnames()) flags.push_back("--" + name);
  }
  const std::string nearest = core::nearest_text(unknown.front(), flags);
  throw core::usage_error(
      one_line(fmt::format("unknown argument '{}'{}; allowed: what --help lists", unknown.front(), nearest)));
}

std::optional<FlagValue> CommandLine::value(const std::string& names) const {
  if (state_->options.at(names)->count() == 0) return std::nullopt;
  return FlagValue{names, state_->texts.at(names)};
}

}  // namespace lockstep::program
