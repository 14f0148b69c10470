#include <algorithm>
#include <array>
#include <limits>
#include <type_traits>

#include <fmt/format.h>

#include "core/options.h"
#include "schedules/generators/catalogue.h"
#include "workload/layout.h"

namespace lockstep::workload {
namespace {

using core::Field;
using core::OptionText;

constexpr double kMostRanks = 1 << 30;
constexpr double kMiB = 1 << 20;
constexpr std::int64_t kMostOfList = 100'000;
constexpr std::array<std::string_view, 2> kDispatch{"copies", "tokens"};
constexpr std::array<std::string_view, 2> kSlicing{"even", "balanced"};
constexpr std::array<std::string_view, 3> kRecompute{"none", "selective", "full"};
constexpr std::array<std::string_view, 3> kOffload{"none", "host", "file"};
constexpr std::array<std::string_view, 2> kUpdate{"step_end", "per_bucket"};
constexpr std::array<std::string_view, 4> kWeightNames{"none", "int8", "int4", "fp8"};
constexpr std::array kWeightWays{CompressionWay::none, CompressionWay::int8, CompressionWay::int4, CompressionWay::fp8};
constexpr std::array<std::string_view, 4> kFp8{"none", "tensor", "row", "block"};
constexpr std::array<std::string_view, 4> kAxes{"tp", "cp", "dp", "pp"};  // as in Axis
constexpr std::array<std::string_view, 3> kDTypes{"f32", "bf16", "f16"};

// Parses "7:8x14:7", such as layers of each stage; 8x14 is eight stages of 14.
std::vector<std::int32_t> list_of(const OptionText& value, std::int64_t least, const char* what, const char* allowed) {
  const auto whole = [&](std::string_view text, std::int64_t min) {
    const auto number = core::parse_number<std::int64_t>(text);
    if (!number || *number < min || *number > 100'000'000) throw value.refused(what, allowed);
    return *number;
  };
  std::vector<std::int32_t> list;
  for (const std::string_view part : core::split(value.text, ':')) {
    const std::size_t times = part.find('x');
    const bool repeated = times != std::string_view::npos;
    const std::int64_t count = repeated ? whole(part.substr(0, times), 1) : 1;
    const std::int64_t number = whole(repeated ? part.substr(times + 1) : part, least);
    if (count > kMostOfList || static_cast<std::int64_t>(list.size()) > kMostOfList) throw value.refused(what, allowed);
    list.insert(list.end(), static_cast<std::size_t>(count), static_cast<std::int32_t>(number));
  }
  return list;
}

template <class Number>
std::string text_of_list(const std::vector<Number>& list) {
  std::string text;
  for (std::size_t i = 0, next = 0; i < list.size(); i = next) {
    while (next < list.size() && list[next] == list[i]) ++next;
    const std::string times = next - i > 1 ? std::to_string(next - i) + "x" : "";
    text += (text.empty() ? "" : ":") + times + std::to_string(list[i]);
  }
  return text;
}

void read_layers(Layout& layout, const OptionText& value) {
  layout.balanced_layers = value.text == "balanced";
  layout.layers_of = layout.balanced_layers
                         ? std::vector<std::int32_t>{}
                         : list_of(value, 0, "neither a list of layers nor balanced",
                                   "balanced, or layers of each stage or stages x layers, separated by colons: "
                                   "7:8x14:7");
}

// Parses "4", or the tokens of each: "2048:2x1024".
void read_slices(Layout& layout, const OptionText& value) {
  layout.slice_tokens.clear();
  if (value.text.find_first_of(":x") == std::string_view::npos) {
    layout.slices = static_cast<std::int32_t>(value.integer(1, 65536));
    return;
  }
  for (const std::int32_t tokens :
       list_of(value, 1, "not a number of slices", "a number, or the tokens of each: 2048:2x1024")) {
    layout.slice_tokens.push_back(tokens);
  }
  layout.slices = static_cast<std::int32_t>(layout.slice_tokens.size());
  if (layout.slices == 1) layout.slice_tokens.clear();
}

std::string text_of(double value) {
  return fmt::format("{:g}", value);
}
std::string text_of(bool value) {
  return value ? "yes" : "no";
}
std::string text_of(std::int64_t value) {
  return std::to_string(value);
}

// Parses "tp-cp-ep-dp-pp": neighbouring ranks differ in the first. Expert ranks are taken from the data ranks. Axes
// that are missing come first, and have one rank (check_left_out).
AxisOrder order_of(const OptionText& value) {
  const auto refused = [&](const std::string& what) {
    return value.refused(
        what,
        "tp, cp, dp and pp, once each or omitted if of one rank, and ep directly before dp or omitted: tp-cp-ep-dp-pp");
  };
  std::vector<Axis> found;
  const std::vector<std::string_view> names = core::split(value.text, '-');
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == "ep") {
      if (i + 1 == names.size() || names[i + 1] != "dp") throw refused("ep is not directly before dp");
      continue;
    }
    const auto axis = std::find(kAxes.begin(), kAxes.end(), names[i]);
    if (axis == kAxes.end()) throw refused("'" + std::string(names[i]) + "' is not a kind of parallelism");
    found.push_back(static_cast<Axis>(axis - kAxes.begin()));
  }
  AxisOrder order = kMegatronOrder;
  auto named = std::stable_partition(order.begin(), order.end(), [&](Axis axis) {
    return std::find(found.begin(), found.end(), axis) == found.end();
  });
  if (static_cast<std::size_t>(order.end() - named) != found.size()) throw refused("an axis occurs twice");
  std::copy(found.begin(), found.end(), named);
  return order;
}

void check_left_out(const Layout& layout, std::string_view order) {
  const std::vector<std::string_view> named = core::split(order, '-');
  const std::array ranks{layout.tp, layout.cp, layout.dp, layout.pp};
  for (std::size_t axis = 0; axis < ranks.size(); ++axis) {
    if (ranks.at(axis) == 1 || std::find(named.begin(), named.end(), kAxes.at(axis)) != named.end()) continue;
    throw core::usage_error("layout: order=" + std::string(order) + " lacks " + std::string(kAxes.at(axis)) +
                            ", which has " + std::to_string(ranks.at(axis)) +
                            " ranks; allowed: an order of all axes with more than one rank");
  }
}

std::string text_of(const AxisOrder& order) {
  std::string text;
  for (const Axis axis : order) {
    text += (text.empty() ? "" : "-") + std::string(axis == Axis::dp ? "ep-" : "");
    text += kAxes.at(static_cast<std::size_t>(axis));
  }
  return text;
}

Grid grid_of(const OptionText& value) {
  if (value.text == "none") return {};
  return value.parsed_by(parse_grid);
}

struct OffloadName {
  std::string_view name;
  Offload OffloadPlaces::*place;
};
constexpr std::array kOffloadKinds{
    OffloadName{"optimizer", &OffloadPlaces::optimizer}, OffloadName{"gradients", &OffloadPlaces::gradients},
    OffloadName{"parameters", &OffloadPlaces::parameters}, OffloadName{"activations", &OffloadPlaces::activations}};

// Parses "optimizer:file+parameters:host"; a location without a kind is for the optimizer's states.
OffloadPlaces offload_of(const OptionText& value) {
  const auto refused = [&](const std::string& what) {
    return value.refused(what,
                         "none, host or file for the optimizer's states, or kinds with their locations joined by '+', "
                         "each once: optimizer, gradients, parameters or activations, ':', host or file, such as "
                         "optimizer:file+parameters:host");
  };
  OffloadPlaces places;
  const auto place_of = [&](std::string_view name) {
    const auto place = std::find(kOffload.begin(), kOffload.end(), name);
    if (place == kOffload.end()) throw refused("'" + std::string(name) + "' is not a location");
    return static_cast<Offload>(place - kOffload.begin());
  };
  if (value.text.find(':') == std::string_view::npos) {
    places.optimizer = place_of(value.text);
    return places;
  }
  for (const std::string_view part : core::split(value.text, '+')) {
    const std::size_t colon = part.find(':');
    const std::string_view name = part.substr(0, colon);
    const auto kind = std::find_if(kOffloadKinds.begin(), kOffloadKinds.end(),
                                   [&](const OffloadName& one) { return one.name == name; });
    if (kind == kOffloadKinds.end()) throw refused("'" + std::string(name) + "' is not a kind of tensor");
    if (colon == std::string_view::npos) throw refused("'" + std::string(name) + "' has no location");
    if (places.*kind->place != Offload::none) throw refused("'" + std::string(name) + "' is given twice");
    places.*kind->place = place_of(part.substr(colon + 1));
    if (places.*kind->place == Offload::none) throw refused("'" + std::string(part) + "' moves nothing");
  }
  return places;
}

core::DType dtype_of(const OptionText& value) {
  return core::parse_dtype(kDTypes.at(value.index_of(kDTypes)));
}

// A layout as the user gives it: by sequences per step or by microbatches; the struct stores the latter.
struct Given {
  Layout layout = {};
  std::int64_t batch = 0;         // 0: not given
  std::int32_t microbatches = 0;  // 0: not given
  std::string order = {};         // empty: not given
};

// A field and how it is written back.
struct LayoutField {
  Field<Given> field;
  std::string (*text)(const Layout& layout);
};

template <bool Layout::*kYes>
constexpr LayoutField yes_or_no(const char* name, const char* takes) {
  return {{name, takes, [](Given& g, const OptionText& v) { g.layout.*kYes = v.yes_or_no(); }},
          [](const Layout& l) { return text_of(l.*kYes); }};
}

template <std::int32_t Layout::*kNumber, std::int32_t kLeast,
          std::int32_t kMost = std::numeric_limits<std::int32_t>::max()>
constexpr LayoutField whole_number(const char* name, const char* takes) {
  return {{name, takes, [](Given& g, const OptionText& v) { g.layout.*kNumber = v.int32(kLeast, kMost); }},
          [](const Layout& l) { return std::to_string(l.*kNumber); }};
}

// A field that counts from 0 in the order of its values' names.
template <auto kField, const auto& kNames>
constexpr LayoutField one_of(const char* name, const char* takes) {
  return {{name, takes,
           [](Given& g, const OptionText& v) {
             g.layout.*kField = static_cast<std::remove_reference_t<decltype(g.layout.*kField)>>(v.index_of(kNames));
           }},
          [](const Layout& l) { return std::string(kNames.at(static_cast<std::size_t>(l.*kField))); }};
}

const std::array kFields{
    whole_number<&Layout::tp, 1>("tp", "tensor-parallel ranks; 1"),
    whole_number<&Layout::pp, 1>("pp", "pipeline ranks; 1"),
    whole_number<&Layout::dp, 1>("dp", "data-parallel ranks; 1"),
    whole_number<&Layout::cp, 1>("cp", "context-parallel ranks; 1"),
    one_of<&Layout::cp_way, kContextWays>(
        "cp_way",
        "how context-parallel ranks share attention: ring zigzag allgather ulysses lightseq colossal; zigzag"),
    LayoutField{
        {"tp_grid", "tensor-parallel ranks in two or three dimensions: none, 2x2 (SUMMA), 2.5d:2x2x2, 2x2x2; none",
         [](Given& g, const OptionText& v) { g.layout.grid = grid_of(v); }},
        [](const Layout& l) { return l.has_grid() ? text_of(l.grid) : std::string("none"); }},
    whole_number<&Layout::ep, 1>("ep", "expert-parallel ranks, a divisor of dp x cp; 1"),
    LayoutField{{"skew", "rows of the busiest expert-parallel rank over the mean, without a capacity; 1",
                 [](Given& g, const OptionText& v) { g.layout.skew = v.number_from(1); }},
                [](const Layout& l) { return text_of(l.skew); }},
    one_of<&Layout::dispatch_tokens, kDispatch>(
        "dispatch",
        "rows that expert-parallel ranks exchange: copies (one per expert of a token) tokens (one per rank "
        "with any of its experts, as DeepEP); copies"),
    LayoutField{{"order",
                 "order of rank numbers: neighbours differ in the first axis; axes of one rank may be omitted; "
                 "tp-cp-ep-dp-pp",
                 [](Given& g, const OptionText& v) {
                   g.layout.order = order_of(v);
                   g.order = v.text;
                 }},
                [](const Layout& l) { return text_of(l.order); }},
    yes_or_no<&Layout::sequence_parallel>("sp", "sequence parallelism: yes no; no"),
    LayoutField{{"schedule", "a pipeline schedule; 1f1b",
                 [](Given& g, const OptionText& v) { g.layout.schedule = schedules::entry_named(v.text).name; }},
                [](const Layout& l) { return l.schedule; }},
    whole_number<&Layout::chunks, 1>("chunks", "stages per rank; 1"),
    LayoutField{
        {"layers",
         "layers of each stage, as in 7:8x14:7, or balanced: the slowest stage as fast as possible, embedding and head "
         "counted; equal numbers",
         [](Given& g, const OptionText& v) { read_layers(g.layout, v); }},
        [](const Layout& l) { return l.balanced_layers ? std::string("balanced") : text_of_list(l.layers_of); }},
    LayoutField{{"slices",
                 "token slices of each microbatch, for schedules that take them: a number, or tokens of each as in "
                 "2048:2x1024; 1",
                 [](Given& g, const OptionText& v) { read_slices(g.layout, v); }},
                [](const Layout& l) {
                  return l.slice_tokens.empty() ? std::to_string(l.slices) : text_of_list(l.slice_tokens);
                }},
    one_of<&Layout::balanced_slices, kSlicing>("slicing",
                                               "slices of equal length (even) or of equal time (balanced); even"),
    LayoutField{{"microbatch", "sequences per microbatch; 1",
                 [](Given& g, const OptionText& v) { g.layout.microbatch_size = v.integer(1); }},
                [](const Layout& l) { return text_of(l.microbatch_size); }},
    LayoutField{
        {"batch", "sequences per step; dp x microbatch", [](Given& g, const OptionText& v) { g.batch = v.integer(1); }},
        [](const Layout& l) { return text_of(l.global_batch()); }},
    LayoutField{{"microbatches", "microbatches per data-parallel rank, instead of batch; 1",
                 [](Given& g, const OptionText& v) { g.microbatches = v.int32(1); }},
                [](const Layout&) { return std::string(); }},  // written as batch
    whole_number<&Layout::zero, 0, 3>("zero", "ZeRO stage: 0 1 2 3; 0"),
    whole_number<&Layout::shard_ranks, 0>("shard_ranks", "ranks that share a set of shards (HSDP); 0 (all)"),
    whole_number<&Layout::secondary_ranks, 0>(
        "secondary_ranks",
        "zero=3: neighbouring ranks that share a secondary copy of the weights, which backwards gather (ZeRO++'s "
        "hpZ); 0 (none)"),
    whole_number<&Layout::near_ranks, 0>(
        "near_ranks",
        "neighbouring ranks that sum gradients first if reduce-scatters use codes (ZeRO++'s qgZ in two hops); "
        "0 (one hop)"),
    LayoutField{
        {"offload",
         "location of optimizer, gradients, parameters or activations while no kernel uses them: host or file, as in "
         "optimizer:file+parameters:host; host or file alone is for the optimizer; none",
         [](Given& g, const OptionText& v) { g.layout.offload = offload_of(v); }},
        [](const Layout& l) { return text_of(l.offload); }},
    whole_number<&Layout::offload_ahead, 0>(
        "offload_ahead", "number of uses by which copies to the device begin in advance, with offload; 1"),
    LayoutField{{"optimizer",
                 "rule of the update: sgd momentum rmsprop adam adamw, with 0, 1, 1, 2 and 2 states per parameter; "
                 "adamw",
                 [](Given& g, const OptionText& v) {
                   g.layout.optimizer = static_cast<kernels::OptimizerKind>(v.index_of(kernels::kOptimizerNames));
                 }},
                [](const Layout& l) { return std::string(kernels::rule_of(l.optimizer).name); }},
    yes_or_no<&Layout::delayed_update>("delayed_update",
                                       "an update runs during the next step (ZeRO-Offload): yes no; no"),
    one_of<&Layout::update, kUpdate>(
        "update",
        "when weights are updated: step_end (all at once, when the norm of all gradients is known) per_bucket "
        "(each gradient bucket after its last reduction; nothing is clipped); step_end"),
    LayoutField{
        {"compression", "encoding of gradients, as in --compression: only codes in reduce-scatters (zero=1 2 3); none",
         [](Given& g, const OptionText& v) { g.layout.compression = v.parsed_by(parse_compression); }},
        [](const Layout& l) { return text_of(l.compression); }},
    LayoutField{
        {"weight_compression", "encoding of weights in all-gathers with zero=3: none int8 int4 fp8; none",
         [](Given& g, const OptionText& v) { g.layout.weight_compression = kWeightWays.at(v.index_of(kWeightNames)); }},
        [](const Layout& l) { return text_of(Compression(l.weight_compression)); }},
    yes_or_no<&Layout::reshard>("reshard", "zero=3 frees weights after the forward: yes no; yes"),
    one_of<&Layout::recompute, kRecompute>("recompute",
                                           "activations that the backward recomputes: none selective full; none"),
    whole_number<&Layout::recompute_every, 1>("recompute_every", "layers between kept inputs, with recompute=full; 1"),
    yes_or_no<&Layout::partition_activations>(
        "partition_activations",
        "recompute=full keeps a part of each input per tensor-parallel rank (ZeRO-R): yes no; no"),
    whole_number<&Layout::mlp_tiles, 1>("mlp_tiles",
                                        "tiles of each MLP, which zero=3 gathers sequentially (ZeRO-Infinity); 1"),
    yes_or_no<&Layout::early_stop>("early_stop",
                                   "recompute=full skips what a layer's backward does not need: yes no; no"),
    yes_or_no<&Layout::flash>("flash", "attention keeps no scores in memory: yes no; yes"),
    LayoutField{{"bucket_mb", "size of gradient buckets in 2^20 bytes, 0 for one bucket; 25",
                 [](Given& g, const OptionText& v) {
                   g.layout.bucket_cap_bytes = static_cast<std::int64_t>(v.number_from(0, 1e6) * kMiB);
                 }},
                [](const Layout& l) { return text_of(static_cast<double>(l.bucket_cap_bytes) / kMiB); }},
    yes_or_no<&Layout::overlap_gradients>("overlap_grads", "gradients are reduced during the backward: yes no; yes"),
    yes_or_no<&Layout::prefetch>("overlap_params", "zero=3 prefetches weights: yes no; yes"),
    yes_or_no<&Layout::gather_lists>("gather_lists",
                                     "zero=3 gathers each matrix as a list of tensors (DeepSpeed in 2021): yes no; no"),
    yes_or_no<&Layout::graphs>("graphs", "the host launches kernels as CUDA graphs: yes no; no"),
    yes_or_no<&Layout::zero_cta>(
        "zero_cta", "all-gathers and all-to-alls within NVLink take no multiprocessors (NCCL 2.28): yes no; no"),
    yes_or_no<&Layout::overlap_tp>("overlap_tp", "collectives of layers overlap with weight gradients: yes no; yes"),
    yes_or_no<&Layout::overlap_p2p>("overlap_p2p", "kernels do not wait for messages to be sent: yes no; no"),
    yes_or_no<&Layout::scatter_gather>("scatter_gather",
                                       "each tensor-parallel rank sends only its part between stages: yes no; no"),
    LayoutField{{"dtype", "weights and activations: f32 bf16 f16; bf16",
                 [](Given& g, const OptionText& v) { g.layout.compute = dtype_of(v); }},
                [](const Layout& l) { return std::string(core::short_name_of(l.compute)); }},
    LayoutField{{"grad_dtype", "gradients as kept and reduced: f32, or as dtype; f32",
                 [](Given& g, const OptionText& v) { g.layout.gradient = dtype_of(v); }},
                [](const Layout& l) { return std::string(core::short_name_of(l.gradient)); }},
    one_of<&Layout::fp8, kFp8>("fp8",
                               "products of layers in 8-bit floats, with one scale per: none tensor row block; none"),
    whole_number<&Layout::fp8_history, 1, 1024>(
        "fp8_history", "steps whose largest elements determine scales, with fp8_delayed: 1 to 1024; 16"),
    yes_or_no<&Layout::fp8_delayed>("fp8_delayed", "scales come from previous steps, with fp8=tensor: yes no; no"),
};

}  // namespace

std::string_view name_of(Offload place) {
  return kOffload.at(static_cast<std::size_t>(place));
}

std::string text_of(const OffloadPlaces& places) {
  if (places == OffloadPlaces{.optimizer = places.optimizer}) return std::string(name_of(places.optimizer));
  std::string text;
  for (const OffloadName& kind : kOffloadKinds) {
    if (places.*kind.place == Offload::none) continue;
    text += (text.empty() ? "" : "+") + std::string(kind.name) + ":" + std::string(name_of(places.*kind.place));
  }
  return text;
}

namespace {

std::int32_t microbatches_of(const Given& given) {
  const std::int64_t each = given.layout.dp * given.layout.microbatch_size;
  if (given.batch != 0 && given.microbatches != 0) {
    throw core::usage_error("layout: batch and microbatches are both given; allowed: one of these fields");
  }
  if (given.microbatches != 0) return given.microbatches;
  if (given.batch == 0) return given.layout.microbatches;
  if (given.batch % each != 0) {
    const std::int64_t below = given.batch / each * each;
    const std::string lower = below > 0 ? std::to_string(below) + " or " : "";
    throw core::usage_error("layout: batch is " + std::to_string(given.batch) +
                            ", which is not a multiple of dp x microbatch, " + std::to_string(each) +
                            "; allowed: such as " + lower + std::to_string(below + each));
  }
  if (given.batch / each > std::numeric_limits<std::int32_t>::max()) {
    throw core::usage_error("layout: batch gives " + std::to_string(given.batch / each) +
                            " microbatches; allowed: below 2^31");
  }
  return static_cast<std::int32_t>(given.batch / each);
}

Layout layout_of(Given given) {
  Layout& layout = given.layout;
  if (layout.has_grid() && layout.tp == 1) layout.tp = layout.grid.ranks();
  const double ranks = static_cast<double>(layout.tp) * layout.cp * layout.dp * layout.pp;
  if (ranks > kMostRanks) {
    throw core::usage_error("layout: tp x cp x dp x pp is " + text_of(ranks) + "; allowed: at most " +
                            text_of(kMostRanks));
  }
  if (!given.order.empty()) check_left_out(layout, given.order);
  layout.microbatches = microbatches_of(given);
  return std::move(layout);
}

}  // namespace

Layout parse_layout(std::string_view text) {
  return parse_layout_over({}, text);
}

Layout parse_layout_over(const Layout& base, std::string_view text) {
  std::vector<Field<Given>> table;
  for (const LayoutField& row : kFields) table.push_back(row.field);
  Given given{.layout = base};
  core::read_fields<Given>(given, "layout", core::split(text, ','), table);
  return layout_of(std::move(given));
}

void set_field(Layout& layout, std::string_view field, const OptionText& value) {
  const auto* const row =
      std::find_if(kFields.begin(), kFields.end(), [&](const LayoutField& known) { return known.field.name == field; });
  LOCKSTEP_CHECK(row != kFields.end(), "a field of layouts");
  Given given{.layout = layout};
  row->field.read(given, value);
  layout = layout_of(std::move(given));
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

}  // namespace lockstep::workload
