#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "core/error.h"
#include "simulator/validation/validation.h"

namespace lockstep::simulator {
namespace {

struct Measure {
  std::string_view name;
  std::string_view unit;
  int digits;
};
constexpr std::array kMeasures{
    Measure{"experts_forward_ms", "ms forward", 2},   Measure{"experts_backward_ms", "ms backward", 2},
    Measure{"tflops_per_gpu", "TFLOP/s", 0},          Measure{"forward_ms", "ms forward", 1},
    Measure{"backward_ms", "ms backward", 1},         Measure{"step_s", "s", 2},
    Measure{"attention_forward_ms", "ms forward", 2}, Measure{"attention_both_ms", "ms forward and backward", 1},
    Measure{"hidden_ktokens", "thousand tokens", 1},  Measure{"sent_nh", "N h", 4}};

std::string number(double value, const std::string& measure) {
  for (const Measure& known : kMeasures) {
    if (known.name == measure) return fmt::format("{:.{}f} {}", value, known.digits, known.unit);
  }
  return fmt::format("{}", value);
}

std::string percent(double share) {
  return fmt::format("{:+.1f} %", 100 * share);
}

constexpr std::size_t kPageColumns = 120;

// Lines of a case's layout below its title, broken after a comma if a line of the page would become too long.
std::string layout_lines(const ValidationCase& of) {
  std::string text = of.title + "\n";
  std::string_view rest = of.layout;
  while (!rest.empty()) {
    std::size_t end = rest.size();
    if (end > kPageColumns - 2) end = rest.rfind(',', kPageColumns - 3) + 1;
    text += fmt::format("  {}\n", rest.substr(0, end));
    rest.remove_prefix(end);
  }
  return text;
}

std::string table_of(std::string_view name, std::span<const Validated> all) {
  std::string rows;
  std::string layouts;
  for (const Validated& each : all) {
    if (each.of.table != name) continue;
    rows += fmt::format("| {} | {} | {} | {} |\n", each.of.title, number(each.of.published, each.of.measure),
                        number(each.predicted, each.of.measure),
                        each.of.fitted ? "fitted (" + percent(each.error()) + ")" : percent(each.error()));
    layouts += layout_lines(each.of);
  }
  if (rows.empty()) throw core::usage_error("validation: no cases of table '" + std::string(name) + "'");
  return "| case | published | predicted | error |\n| --- | --- | --- | --- |\n" + rows + "\nTheir layouts:\n```\n" +
         layouts + "```\n";
}

std::string score_row(std::string_view name, std::span<const Validated> all) {
  const Score score = score_of(all);
  return fmt::format("| {} | {} | {:.1f} % | {:.1f} % |\n", name, score.count, 100 * score.mean, 100 * score.max);
}

std::string regrets(std::span<const Validated> all) {
  std::string text = "| grid | chosen | published | best published | regret |\n| --- | --- | --- | --- | --- |\n";
  for (const Choice& choice : choices_of(all)) {
    text += fmt::format("| {} | {} | {} | {} | {:.1f} % |\n", choice.chosen->of.grid, choice.chosen->of.title,
                        number(choice.chosen->of.published, "step_s"), number(choice.best->of.published, "step_s"),
                        100 * choice.regret());
  }
  return text;
}

std::string scores(std::span<const Validated> all) {
  std::string text = "| table | cases | mean error | largest error |\n| --- | --- | --- | --- |\n";
  std::vector<std::string> tables;
  for (const Validated& each : all) {
    if (tables.empty() || tables.back() != each.of.table) tables.push_back(each.of.table);
  }
  for (const std::string& table : tables) {
    std::vector<Validated> part;
    for (const Validated& each : all) {
      if (each.of.table == table) part.push_back(each);
    }
    text += score_row(table, part);
  }
  std::vector<Validated> measured;
  std::copy_if(all.begin(), all.end(), std::back_inserter(measured),
               [](const Validated& each) { return !each.of.is_formula; });
  return text + score_row("all", measured);
}

}  // namespace

std::string with_tables(const std::string& page, std::span<const Validated> all,
                        std::span<const ValidatedCollective> collectives, std::span<const ProductSweep> products) {
  constexpr std::string_view kBegin = "<!-- table ";
  constexpr std::string_view kName = " -->\n";
  constexpr std::string_view kEnd = "<!-- end -->";
  std::string made;
  std::size_t at = 0;
  while (true) {
    const std::size_t begin = page.find(kBegin, at);
    if (begin == std::string::npos) return made + page.substr(at);
    const std::size_t name = begin + kBegin.size();
    const std::size_t body = page.find(kName, name);
    const std::size_t end = page.find(kEnd, name);
    if (body == std::string::npos || end == std::string::npos || end < body) {
      throw core::usage_error("validation: a table of the page has no end; allowed: <!-- table NAME --> ... " +
                              std::string(kEnd));
    }
    const std::string which = page.substr(name, body - name);
    const std::string collective = collective_table(which, collectives);
    made += page.substr(at, body + kName.size() - at);
    if (which == "score") {
      made += scores(all);
    } else if (which == "regret") {
      made += regrets(all);
    } else if (which == "products") {
      made += product_table(products);
    } else {
      made += collective.empty() ? table_of(which, all) : collective;
    }
    at = end;
  }
}

}  // namespace lockstep::simulator
