#include <array>
#include <sstream>

#include "schedules/catalogue.h"
#include "simulator/layout/layout.h"
#include "simulator/model/fields.h"

namespace lockstep::simulator {
namespace {

constexpr double kMostRanks = 1 << 30;
constexpr std::array<std::string_view, 3> kRecompute{"none", "selective", "full"};

// "7:8x14:7": layers of each stage; 8x14 is eight stages of 14.
std::vector<std::int32_t> layer_list(const FieldValue& value) {
  const auto whole = [&](std::string_view text, std::int64_t min) {
    try {
      return FieldValue{value.of, value.name, text}.integer(min, 100'000);
    } catch (const core::Error&) {
      throw value.refused("no list of layers", "layers of each stage, or stages x layers, between colons: 7:8x14:7");
    }
  };
  std::vector<std::int32_t> layers;
  for (const std::string_view part : split(value.text, ':')) {
    const std::size_t times = part.find('x');
    const bool repeated = times != std::string_view::npos;
    const std::int64_t stages = repeated ? whole(part.substr(0, times), 1) : 1;
    const std::int64_t number = whole(repeated ? part.substr(times + 1) : part, 0);
    layers.insert(layers.end(), static_cast<std::size_t>(stages), static_cast<std::int32_t>(number));
  }
  return layers;
}

std::string text_of(const std::vector<std::int32_t>& layers) {
  std::string text;
  for (std::size_t i = 0, next = 0; i < layers.size(); i = next) {
    while (next < layers.size() && layers[next] == layers[i]) ++next;
    const std::string times = next - i > 1 ? std::to_string(next - i) + "x" : "";
    text += (text.empty() ? "" : ":") + times + std::to_string(layers[i]);
  }
  return text;
}

std::string text_of(double value) {
  std::ostringstream text;
  text << value;
  return text.str();
}
std::string text_of(bool value) {
  return value ? "yes" : "no";
}
std::string text_of(std::int64_t value) {
  return std::to_string(value);
}

// A field, and how it is written back.
struct LayoutField {
  Field<Layout> field;
  std::string (*text)(const Layout& layout);
};

const std::array kFields{
    LayoutField{{"tp", "tensor-parallel ranks; 1", [](Layout& l, const FieldValue& v) { l.tp = v.int32(1); }},
                [](const Layout& l) { return std::to_string(l.tp); }},
    LayoutField{{"pp", "pipeline ranks; 1", [](Layout& l, const FieldValue& v) { l.pp = v.int32(1); }},
                [](const Layout& l) { return std::to_string(l.pp); }},
    LayoutField{{"dp", "data-parallel ranks; 1", [](Layout& l, const FieldValue& v) { l.dp = v.int32(1); }},
                [](const Layout& l) { return std::to_string(l.dp); }},
    LayoutField{{"cp", "context-parallel ranks; 1", [](Layout& l, const FieldValue& v) { l.cp = v.int32(1); }},
                [](const Layout& l) { return std::to_string(l.cp); }},
    LayoutField{
        {"ep", "expert-parallel ranks, of dp x cp; 1", [](Layout& l, const FieldValue& v) { l.ep = v.int32(1); }},
        [](const Layout& l) { return std::to_string(l.ep); }},
    LayoutField{{"sp", "sequence parallel: yes no; no",
                 [](Layout& l, const FieldValue& v) { l.sequence_parallel = v.yes_or_no(); }},
                [](const Layout& l) { return text_of(l.sequence_parallel); }},
    LayoutField{{"schedule", "a pipeline schedule; 1f1b",
                 [](Layout& l, const FieldValue& v) { l.schedule = schedules::entry_named(v.text).name; }},
                [](const Layout& l) { return l.schedule; }},
    LayoutField{{"chunks", "stages a rank; 1", [](Layout& l, const FieldValue& v) { l.chunks = v.int32(1); }},
                [](const Layout& l) { return std::to_string(l.chunks); }},
    LayoutField{{"layers", "layers of each stage, as in 7:8x14:7; all alike",
                 [](Layout& l, const FieldValue& v) { l.layers_of = layer_list(v); }},
                [](const Layout& l) { return text_of(l.layers_of); }},
    LayoutField{{"microbatch", "sequences of a microbatch; 1",
                 [](Layout& l, const FieldValue& v) { l.microbatch_size = v.integer(1); }},
                [](const Layout& l) { return text_of(l.microbatch_size); }},
    LayoutField{{"batch", "sequences of a step; dp x microbatch",
                 [](Layout& l, const FieldValue& v) { l.global_batch = v.integer(1); }},
                [](const Layout& l) { return text_of(l.global_batch); }},
    LayoutField{{"zero", "0 1 2 3; 0",
                 [](Layout& l, const FieldValue& v) { l.zero = static_cast<std::int32_t>(v.integer(0, 3)); }},
                [](const Layout& l) { return std::to_string(l.zero); }},
    LayoutField{{"shard_ranks", "ranks that share a set of shards (HSDP); 0, which is all",
                 [](Layout& l, const FieldValue& v) { l.shard_ranks = v.int32(0); }},
                [](const Layout& l) { return std::to_string(l.shard_ranks); }},
    LayoutField{{"reshard", "zero=3 gives weights up after the forward: yes no; yes",
                 [](Layout& l, const FieldValue& v) { l.reshard = v.yes_or_no(); }},
                [](const Layout& l) { return text_of(l.reshard); }},
    LayoutField{{"recompute", "none selective full; none",
                 [](Layout& l, const FieldValue& v) { l.recompute = static_cast<Recompute>(v.one_of(kRecompute)); }},
                [](const Layout& l) { return std::string(kRecompute.at(static_cast<std::size_t>(l.recompute))); }},
    LayoutField{{"recompute_every", "layers between kept inputs, with recompute=full; 1",
                 [](Layout& l, const FieldValue& v) { l.recompute_every = v.int32(1); }},
                [](const Layout& l) { return std::to_string(l.recompute_every); }},
    LayoutField{{"flash", "attention keeps no scores: yes no; yes",
                 [](Layout& l, const FieldValue& v) { l.flash = v.yes_or_no(); }},
                [](const Layout& l) { return text_of(l.flash); }},
    LayoutField{{"bucket_mb", "of gradients, 2^20 bytes, 0 for one bucket; 25",
                 [](Layout& l, const FieldValue& v) { l.bucket_mb = v.number(0); }},
                [](const Layout& l) { return text_of(l.bucket_mb); }},
    LayoutField{
        {"overlap_grads", "yes no; yes", [](Layout& l, const FieldValue& v) { l.overlap_grads = v.yes_or_no(); }},
        [](const Layout& l) { return text_of(l.overlap_grads); }},
    LayoutField{
        {"overlap_params", "yes no; yes", [](Layout& l, const FieldValue& v) { l.overlap_params = v.yes_or_no(); }},
        [](const Layout& l) { return text_of(l.overlap_params); }},
    LayoutField{{"overlap_tp", "yes no; yes", [](Layout& l, const FieldValue& v) { l.overlap_tp = v.yes_or_no(); }},
                [](const Layout& l) { return text_of(l.overlap_tp); }},
    LayoutField{{"overlap_p2p", "yes no; no", [](Layout& l, const FieldValue& v) { l.overlap_p2p = v.yes_or_no(); }},
                [](const Layout& l) { return text_of(l.overlap_p2p); }},
    LayoutField{
        {"scatter_gather", "yes no; no", [](Layout& l, const FieldValue& v) { l.scatter_gather = v.yes_or_no(); }},
        [](const Layout& l) { return text_of(l.scatter_gather); }},
    LayoutField{{"grad_bytes", "2 4; 4",
                 [](Layout& l, const FieldValue& v) {
                   constexpr std::array<std::string_view, 2> kBytes{"2", "4"};
                   l.grad_bytes = v.one_of(kBytes) == 0 ? 2 : 4;
                 }},
                [](const Layout& l) { return std::to_string(l.grad_bytes); }},
};

}  // namespace

Layout parse_layout(std::string_view text) {
  std::vector<Field<Layout>> table;
  for (const LayoutField& row : kFields) table.push_back(row.field);
  const std::vector<std::string_view> parts = split(text, ',');
  Layout layout;
  layout.global_batch = 0;
  read_fields<Layout>(layout, "layout", parts, table);
  const double ranks = static_cast<double>(layout.tp) * layout.cp * layout.dp * layout.pp;
  if (ranks > kMostRanks) {
    throw core::usage_error("layout: tp x cp x dp x pp is " + text_of(ranks) + "; allowed: at most " +
                            text_of(kMostRanks));
  }
  if (layout.global_batch == 0) layout.global_batch = layout.dp * layout.microbatch_size;
  return layout;
}

std::vector<std::string> layout_fields() {
  std::vector<std::string> fields;
  for (const LayoutField& row : kFields) fields.push_back(std::string(row.field.name) + ": " + row.field.takes);
  return fields;
}

std::string text_of(const Layout& layout) {
  std::string text;
  const Layout usual;
  for (const LayoutField& row : kFields) {
    const std::string_view name = row.field.name;
    const std::string value = row.text(layout);
    if (value == row.text(usual) && name != "tp" && name != "pp" && name != "dp" && name != "batch") continue;
    text += (text.empty() ? "" : ",") + std::string(name) + "=" + value;
  }
  return text;
}

}  // namespace lockstep::simulator
