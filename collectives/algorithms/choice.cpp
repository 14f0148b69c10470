// From the user's text ("ring:lanes=4") to a plan.
#include <fmt/format.h>

#include <charconv>

#include "collectives/algorithms/algorithm.h"
#include "core/error.h"
#include "core/nearest.h"

namespace lockstep::algorithms {

namespace {

using Options = std::map<std::string, int, std::less<>>;

const Option* find_option(const Algorithm& algorithm, std::string_view name) {
  for (const Option& option : algorithm.options) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

std::string options_help(const Algorithm& algorithm) {
  if (algorithm.options.empty()) return fmt::format("{} has no options", algorithm.name);
  std::string help = fmt::format("options of {}:", algorithm.name);
  for (const Option& o : algorithm.options) help += fmt::format(" {}={}..{}", o.name, o.min_value, o.max_value);
  return help;
}

const Algorithm& find_algorithm(collectives::Kind kind, std::string_view name) {
  std::string names;
  for (const Algorithm* algorithm : algorithms_of(kind)) {
    if (algorithm->name == name) return *algorithm;
    names += fmt::format(" {}", algorithm->name);
  }
  std::vector<std::string_view> all;
  for (const Algorithm* algorithm : algorithms_of(kind)) all.push_back(algorithm->name);
  throw core::usage_error(fmt::format("--algo: {} has no algorithm '{}'{}; allowed:{}", collectives::name_of(kind),
                                      name, core::nearest_text(name, all), names));
}

std::vector<std::string_view> split_at_colons(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t begin = 0;
  for (std::size_t end = text.find(':'); end != std::string_view::npos; end = text.find(':', begin)) {
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  parts.push_back(text.substr(begin));
  return parts;
}

void set_option(const Algorithm& algorithm, std::string_view part, Options& options) {
  const std::size_t equals = part.find('=');
  const Option* option = equals == std::string_view::npos ? nullptr : find_option(algorithm, part.substr(0, equals));
  if (option == nullptr) {
    throw core::usage_error(
        fmt::format("--algo: '{}' is not an option of {}; {}", part, algorithm.name, options_help(algorithm)));
  }
  const std::string_view digits = part.substr(equals + 1);
  int value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  const bool is_number = error == std::errc() && end == digits.data() + digits.size();
  if (!is_number || value < option->min_value || value > option->max_value) {
    throw core::usage_error(fmt::format("--algo: {}:{}={}: allowed are {} to {} ({})", algorithm.name, option->name,
                                        digits, option->min_value, option->max_value, option->meaning));
  }
  if (!options.emplace(option->name, value).second) {
    throw core::usage_error(fmt::format("--algo: {}: {} is given twice", algorithm.name, option->name));
  }
}

plan::Plan copy_only(collectives::Kind kind) {
  plan::PlanBuilder builder(kind, 1, 0, 1);
  builder.copy(0, plan::output(0), plan::input(0));
  return builder.finish("");
}

}  // namespace

int Shape::option(std::string_view name) const {
  const auto found = options.find(name);
  LOCKSTEP_CHECK(found != options.end(), fmt::format("option '{}' is not declared in the catalogue", name));
  return found->second;
}

std::vector<const Algorithm*> algorithms_of(collectives::Kind kind) {
  std::vector<const Algorithm*> found;
  for (const Algorithm& algorithm : catalogue()) {
    if (algorithm.kind == kind) found.push_back(&algorithm);
  }
  return found;
}

std::string Choice::label() const {
  std::string label(algorithm->name);
  for (const Option& option : algorithm->options) {
    const int value = options.find(option.name)->second;
    if (value != option.default_value) label += fmt::format(":{}={}", option.name, value);
  }
  return label;
}

Choice parse_choice(collectives::Kind kind, std::string_view text) {
  const std::vector<std::string_view> parts = split_at_colons(text);
  Choice choice{&find_algorithm(kind, parts.front()), {}};
  for (std::size_t i = 1; i < parts.size(); ++i) set_option(*choice.algorithm, parts[i], choice.options);
  for (const Option& option : choice.algorithm->options) choice.options.emplace(option.name, option.default_value);
  return choice;
}

std::optional<std::string> refusal(const Choice& choice, int num_ranks, int root) {
  return choice.algorithm->refuse(Shape{num_ranks, root, choice.options});
}

std::vector<std::string> tuned_variants(collectives::Kind kind) {
  std::vector<std::string> variants;
  for (const Algorithm* algorithm : algorithms_of(kind)) {
    for (const Option& option : algorithm->options) {
      for (int value : option.also_tuned)
        variants.push_back(fmt::format("{}:{}={}", algorithm->name, option.name, value));
    }
  }
  return variants;
}

plan::Plan make_plan(const Choice& choice, int num_ranks, int root) {
  LOCKSTEP_CHECK(num_ranks >= 1 && root >= 0 && root < num_ranks, fmt::format("root {} of {} ranks", root, num_ranks));
  if (const auto why = refusal(choice, num_ranks, root)) {
    throw core::usage_error(fmt::format("--algo {}: {}", choice.label(), *why));
  }
  plan::Plan plan = num_ranks == 1 ? copy_only(choice.algorithm->kind)
                                   : choice.algorithm->make(Shape{num_ranks, root, choice.options});
  plan.algorithm = choice.label();
  return plan;
}

}  // namespace lockstep::algorithms
