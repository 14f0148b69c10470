#include "workload/rules.h"

#include <array>
#include <numeric>

#include <fmt/format.h>

#include "kernels/moe/router.h"
#include "workload/context_layer.h"
#include "workload/operations.h"

namespace lockstep::workload {
namespace {

std::string number(std::int64_t value) {
  return std::to_string(value);
}

std::string divisors_of(std::int64_t value) {
  std::string found;
  int listed = 0;
  for (std::int64_t d = 1; d <= value; ++d) {
    if (value % d != 0) continue;
    if (++listed > 16) return found + " ...";
    found += (found.empty() ? "" : " ") + number(d);
  }
  return found;
}

std::string first_of(std::initializer_list<std::string> answers) {
  for (const std::string& answer : answers) {
    if (!answer.empty()) return answer;
  }
  return "";
}

std::string tensor_conflict(const Model& model, const Layout& layout) {
  if (layout.has_grid()) return grid_conflict(model, layout);
  return first_of({must_divide("tp", layout.tp, "heads", model.heads),
                   must_divide("tp", layout.tp, "kv_heads", model.kv_heads),
                   must_divide("tp", layout.tp, "ffn_hidden", model.ffn_hidden)});
}

std::string sequence_conflict(const Model& model, const Layout& layout) {
  if (layout.cp > 1) {
    if (auto reason = why_invalid(context_layer_of(model, layout, 0)); !reason.empty()) return reason;
    if (layout.cp_way == ContextWay::colossal && layout.flash) {
      return "flash is yes, and cp_way is colossal, which has scores in memory; allowed: flash=no";
    }
  }
  if (!layout.sequence_parallel) return "";
  return must_divide("tp", layout.tp, "microbatch x sequence / cp",
                     layout.microbatch_size * model.sequence / layout.cp);
}

std::string expert_conflict(const Model& model, const Layout& layout) {
  if (model.experts == 0) {
    if (layout.skew > 1) return "skew is above 1; allowed: 1, as the model has no experts";
    return layout.ep == 1 ? "" : "ep is " + number(layout.ep) + "; allowed: 1, as the model has no experts";
  }
  if (layout.tp > 1 && !layout.sequence_parallel) {
    return "sp is no; allowed: yes, as experts with tp above 1 exchange tokens that are spread over tensor ranks";
  }
  if (layout.skew > layout.ep) {
    return fmt::format("skew is {:g}, and ep is {}; allowed: at most ep, where one rank has all rows", layout.skew,
                       layout.ep);
  }
  if (layout.skew > 1 && model.capacity_factor > 0) {
    return "skew is above 1, and capacity_factor is above 0; allowed: skew=1, as every expert takes as many rows";
  }
  if (layout.dispatch_tokens && layout.ep > 1 && layout.ep % model.expert_groups != 0) {
    return "dispatch is tokens, ep is " + number(layout.ep) + ", and expert_groups is " + number(model.expert_groups) +
           "; allowed: dispatch=copies, or a multiple of expert_groups as ep, so that ranks are in one group";
  }
  return first_of({must_divide("ep", layout.ep, "experts", model.experts),
                   must_divide("ep", layout.ep, "dp x cp", std::int64_t{layout.dp} * layout.cp)});
}

std::string gradient_conflict(const Layout& layout) {
  if (layout.gradient == core::DType::f32 || layout.gradient == layout.compute) return "";
  return "grad_dtype is " + std::string(core::short_name_of(layout.gradient)) + ", and dtype is " +
         std::string(core::short_name_of(layout.compute)) + "; allowed: f32, or as dtype";
}

// Whole gradients and those of replicas are all-reduced; otherwise shards are reduce-scattered, which only codes
// support.
std::string compression_conflict(const Layout& layout) {
  if (layout.weight_compression != CompressionWay::none && layout.zero != 3) {
    return "weight_compression is " + text_of(Compression(layout.weight_compression)) + ", and zero is " +
           number(layout.zero) + "; allowed: none, or zero=3";
  }
  if (!layout.compression.given()) return "";
  const std::string is = "compression is " + text_of(layout.compression);
  if (layout.gradient != core::DType::f32) return is + ", and gradients are narrow; allowed: none, or grad_dtype=f32";
  if (zero_of(layout) == 0 || replicas_of(layout) > 1 || sends_codes(layout.compression.way)) return "";
  return is + ", and zero is " + number(layout.zero) +
         "; allowed: int8, int4, fp8 or sign; or zero=0, or shard_ranks less than dp";
}

std::string fp8_conflict(const Model& model, const Layout& layout) {
  if (layout.fp8_delayed && layout.fp8 != Fp8::tensor) {
    return "fp8_delayed is yes; allowed: no, or fp8=tensor, as other scales are made of the tensor at hand";
  }
  if (layout.fp8 == Fp8::none) return "";
  if (layout.compute == core::DType::f16) return "fp8 with dtype f16; allowed: dtype bf16 or f32";
  return model.experts > 0 ? "fp8 with experts; allowed: fp8=none, or a model without experts" : "";
}

std::string shard_conflict(const Layout& layout) {
  if (layout.shard_ranks == 0) return "";
  if (layout.zero == 0) return "shard_ranks is " + number(layout.shard_ranks) + "; allowed: 0, as zero is 0";
  if (layout.ep > 1) {
    return "shard_ranks is " + number(layout.shard_ranks) + "; allowed: 0, as ep is " + number(layout.ep) +
           " and experts are sharded over all ranks that have them";
  }
  return must_divide("shard_ranks", layout.shard_ranks, "dp x cp", std::int64_t{layout.dp} * layout.cp);
}

std::string partition_conflict(const Model& model, const Layout& layout) {
  if (!layout.partition_activations) return "";
  const auto allowed_with = [](const std::string& has, const std::string& with) {
    return "partition_activations is yes, and " + has + "; allowed: no, or " + with;
  };
  if (layout.recompute != Recompute::full) return allowed_with("recompute is not full", "recompute=full");
  if (layout.tp == 1) return allowed_with("tp is 1", "tp above 1");
  if (layout.shares_rows()) {
    return "partition_activations is yes, and tensor ranks share rows already (sp, tp_grid); allowed: no, or sp=no "
           "without a grid";
  }
  return must_divide("tp", layout.tp, "microbatch x sequence / cp x hidden",
                     layout.microbatch_size * model.sequence / layout.cp * model.hidden);
}

std::string tile_conflict(const Model& model, const Layout& layout) {
  if (layout.mlp_tiles == 1) return "";
  const std::string is = "mlp_tiles is " + number(layout.mlp_tiles);
  if (model.experts > 0) return is + ", and the model has experts; allowed: 1";
  if (layout.shares_rows()) return is + ", and tensor ranks share rows (sp, tp_grid); allowed: 1, or sp=no";
  if (layout.fp8 != Fp8::none) return is + " with fp8; allowed: 1, or fp8=none";
  if (layout.gather_lists) return is + " with gather_lists; allowed: 1, or gather_lists=no";
  return must_divide("tp x mlp_tiles", std::int64_t{layout.tp} * layout.mlp_tiles, "ffn_hidden", model.ffn_hidden);
}

// The ranks must be a divisor of those that share a set of shards, so that they are neighbours among themselves.
std::string neighbours_conflict(const Layout& layout, const char* field, std::int32_t ranks) {
  const std::int64_t shards = layout.shard_ranks > 0 ? layout.shard_ranks : std::int64_t{layout.dp} * layout.cp;
  const char* const of = layout.shard_ranks > 0 ? "shard_ranks" : "dp x cp";
  if (ranks > 1 && ranks < shards) return must_divide(field, ranks, of, shards);
  return std::string(field) + " is " + number(ranks) + ", and " + of + " is " + number(shards) +
         "; allowed: 0, or a divisor of that from 2 to " + number(shards / 2);
}

std::string secondary_conflict(const Layout& layout) {
  if (layout.secondary_ranks == 0) return "";
  const std::string is = "secondary_ranks is " + number(layout.secondary_ranks);
  if (layout.zero != 3) return is + ", and zero is " + number(layout.zero) + "; allowed: 0, or zero=3";
  if (!layout.reshard)
    return is + ", and reshard is no, so that a backward gathers nothing; allowed: 0, or reshard=yes";
  if (layout.offload.parameters != Offload::none || layout.delayed_update) {
    return is +
           ", and weights are beyond the device (offload of parameters, delayed_update); allowed: 0, or weights there";
  }
  return neighbours_conflict(layout, "secondary_ranks", layout.secondary_ranks);
}

std::string near_conflict(const Layout& layout) {
  if (layout.near_ranks == 0) return "";
  const std::string is = "near_ranks is " + number(layout.near_ranks);
  if (layout.zero == 0 || !sends_codes(layout.compression.way)) {
    return is +
           ", and no reduce-scatter travels as codes; allowed: 0, or zero=1, 2 or 3 with compression=int8, int4, "
           "fp8 or sign";
  }
  if (replicas_of(layout) > 1) {
    return is + ", and compression is of all-reduces over replicas of shards; allowed: 0, or shard_ranks=0";
  }
  return neighbours_conflict(layout, "near_ranks", layout.near_ranks);
}

std::string gather_conflict(const Layout& layout) {
  return layout.gather_lists && layout.zero != 3
             ? "gather_lists is yes, and zero is " + number(layout.zero) + "; allowed: no, or zero=3"
             : "";
}

// Reduced shards are copied off the device during the backward; gradients that other groups sum at the end of a step
// stay there.
std::string gradient_offload_conflict(const Model& model, const Layout& layout) {
  const std::string is = "offload is " + text_of(layout.offload);
  if (zero_of(layout) < 2) {
    return is + ", and zero is " + number(zero_of(layout)) +
           "; allowed: gradients on the device, or zero=2 or 3 over two data-parallel ranks or more";
  }
  if (layout.tp > 1 && layout.shares_rows()) {
    return is + ", and tensor ranks share rows; allowed: gradients on the device, or sp=no without tp_grid";
  }
  if (model.tied_embeddings && stages_per_pipe(layout) > 1) {
    return is + ", and tied_embeddings is yes over " + number(stages_per_pipe(layout)) +
           " stages; allowed: gradients on the device, tied_embeddings=no, or one stage";
  }
  return "";
}

std::string offload_conflict(const Model& model, const Layout& layout) {
  const OffloadPlaces& places = layout.offload;
  if (places.gradients != Offload::none) {
    if (auto reason = gradient_offload_conflict(model, layout); !reason.empty()) return reason;
  }
  if (places.parameters != Offload::none && zero_of(layout) != 3) {
    return "offload is " + text_of(places) + ", and zero is " + number(zero_of(layout)) +
           "; allowed: parameters on the device, or zero=3 over two data-parallel ranks or more";
  }
  if (places.optimizer != Offload::none && optimizer_elem_bytes(layout.optimizer, layout.compute) == 0) {
    return "offload is " + text_of(places) + ", and optimizer=" + std::string(kernels::rule_of(layout.optimizer).name) +
           " has no states in f32; allowed: the optimizer on the device, dtype=bf16 or f16, or another optimizer";
  }
  if (!layout.delayed_update) return "";
  if (places.optimizer == Offload::none || places.gradients == Offload::none) {
    return "delayed_update is yes, and offload is " + text_of(places) +
           "; allowed: no, or optimizer and gradients both in host or file";
  }
  return layout.compute == core::DType::f32
             ? "delayed_update is yes, and dtype is f32; allowed: no, or dtype=bf16 or f16"
             : "";
}

// A user's own schedule is checked when it is read; the arrangement of its pipes is checked here.
std::string own_conflict(const schedules::Schedule& own) {
  if (own.num_pipes() == 1) return "";
  if (own.num_ranks() % 2 == 0 && own.rank_of_stage == schedules::opposite_placement(own.num_ranks())) return "";
  return "the schedule " + own.name + " has " + number(own.num_pipes()) + " pipes on " + number(own.num_ranks()) +
         " ranks; allowed: one, or two on an even number of ranks, from the first to the last and from the last to the "
         "first";
}

// Positions p and pp - 1 - p of opposite pipes have the same parameters; their data ranks ascend only if pp counts
// last.
std::string order_conflict(const Layout& layout) {
  if (layout.order.back() == Axis::pp || pipes_of(layout) == 1) return "";
  return "the schedule has two pipes, and order does not end in pp; allowed: such as tp-cp-ep-dp-pp";
}

// Updates per bucket must not depend on gradients that are not complete yet.
std::string update_conflict(const Layout& layout) {
  if (layout.update == Update::step_end) return "";
  if (layout.compute == core::DType::f16) {
    return "update is per_bucket, and dtype is f16, whose step is left out where any of its gradients overflows; "
           "allowed: update=step_end, or dtype=bf16 or f32";
  }
  if (layout.delayed_update) {
    return "update is per_bucket, and delayed_update is yes; allowed: one of them, as a delayed update is of all "
           "weights";
  }
  if (layout.offload.gradients != Offload::none || layout.offload.parameters != Offload::none) {
    return "update is per_bucket, and offload is " + text_of(layout.offload) +
           "; allowed: update=step_end, or gradients and parameters on the device";
  }
  if (versions_of(layout) == schedules::Versions::one) return "";
  return "update is per_bucket, and schedule is " + layout.schedule +
         ", whose microbatches read several versions of the weights; allowed: update=step_end, or a schedule such as "
         "1f1b";
}

std::string slice_conflict(const Model& model, const Layout& layout) {
  if (layout.slices == 1) return "";
  const std::string is = "slices is " + number(layout.slices);
  if (layout.slices > model.sequence) return is + "; allowed: at most one slice per token, " + number(model.sequence);
  if (layout.cp > 1) return is + ", and cp is " + number(layout.cp) + "; allowed: cp=1, or slices=1";
  if (layout.has_grid()) return is + ", and tp_grid is given; allowed: tp_grid=none, or slices=1";
  if (layout.recompute == Recompute::full) {
    return is + ", and recompute is full, which would keep no keys for later slices; allowed: selective or none";
  }
  std::int64_t sum = 0;
  for (const std::int64_t tokens : tokens_of_slices(model, layout)) {
    sum += tokens;
    if (!layout.sequence_parallel || layout.balanced_slices) continue;
    if (auto reason = must_divide("tp", layout.tp, "microbatch x tokens of a slice", layout.microbatch_size * tokens);
        !reason.empty()) {
      return reason;
    }
  }
  if (sum == model.sequence) return "";
  return "slices have " + number(sum) + " tokens; allowed: those of a sequence, " + number(model.sequence);
}

// Activations are moved to one location only.
std::string evicting_conflict(const Layout& layout) {
  if (layout.offload.activations == Offload::none) return "";
  const bool evicts = evicts_activations(layout);
  if (!evicts && layout.slices == 1) return "";
  return "offload is " + text_of(layout.offload) + ", and " +
         (evicts ? "the schedule moves activations to other ranks" : "slices is " + number(layout.slices)) +
         "; allowed: activations on the device";
}

std::string schedule_conflict(const Layout& layout) {
  if (layout.own_schedule != nullptr) return own_conflict(*layout.own_schedule);
  const std::string reason = schedules::why_invalid(schedules::entry_named(layout.schedule), shape_of(layout));
  return reason.empty() ? "" : "schedule " + layout.schedule + ": " + reason;
}

std::string split_conflict(const Model& model, const Layout& layout) {
  const std::int32_t stages = stages_per_pipe(layout);
  if (layout.layers_of.empty()) {
    if (model.layers >= stages) return "";
    return "layers is " + number(model.layers) + ", and there are " + number(stages) +
           " stages; allowed: at most one stage a layer";
  }
  if (layout.layers_of.size() != static_cast<std::size_t>(stages)) {
    return "layers names " + number(static_cast<std::int64_t>(layout.layers_of.size())) +
           " stages; allowed: " + number(stages);
  }
  const std::int64_t sum = std::accumulate(layout.layers_of.begin(), layout.layers_of.end(), std::int64_t{0});
  if (sum == model.layers) return "";
  return "layers of the stages add up to " + number(sum) + "; allowed: " + number(model.layers);
}

// Features that the trainer lacks.

std::string lacks(bool needed, const std::string& what, const std::string& allowed) {
  return needed ? "mini_train does not have " + what + "; allowed: " + allowed : "";
}

std::string lacks_for_experts(const Model& model, const Layout& layout) {
  constexpr std::int64_t kMostExperts = kernels::RouterShape::kMostExperts;
  constexpr std::int64_t kMostChoices = kernels::RouterShape::kMostChoices;
  if (model.experts == 0) return "";
  return first_of(
      {lacks(model.experts > kMostExperts, number(model.experts) + " experts", "at most " + number(kMostExperts)),
       lacks(model.experts_per_token > kMostChoices, number(model.experts_per_token) + " experts per token",
             "at most " + number(kMostChoices)),
       lacks(model.sigmoid_router && (model.balance_loss > 0 || model.z_loss > 0), "losses of a sigmoid router",
             "balance_loss=0,z_loss=0, or router=softmax"),
       lacks(layout.fp8 != Fp8::none, "experts with 8-bit floats", "fp8=none"),
       lacks(layout.skew > 1, "a stated skew of the router", "skew=1"),
       lacks(layout.dispatch_tokens, "tokens sent once to a rank with several of their experts", "dispatch=copies"),
       lacks(layout.tp > 1, "experts on tensor-parallel ranks", "tp=1"),
       lacks(layout.shard_ranks > 0, "experts whose shards have replicas", "shard_ranks=0"),
       // Losses that balance experts are means over a microbatch.
       lacks(layout.slices > 1, "experts with slices of tokens", "slices=1")});
}

// Activations kept by context-parallel attention and by mixtures can neither be offloaded nor evicted.
std::string lacks_moves(const Model& model, const Layout& layout) {
  const bool evicts = evicts_activations(layout);
  const std::string moves = evicts ? "schedule=" + layout.schedule : "offload=" + text_of(layout.offload);
  if (evicts && layout.offload.gradients != Offload::none) {
    return lacks(true, moves + ", which evicts activations, together with offloaded gradients",
                 "gradients on the device");
  }
  const bool stay = !evicts && layout.offload.activations == Offload::none;
  if (stay || layout.recompute == Recompute::full) return "";
  return lacks(model.experts > 0 || layout.cp > 1,
               moves + " of activations of " + (model.experts > 0 ? "experts" : "context-parallel ranks") +
                   " that are not recomputed",
               "recompute=full, or activations on the device");
}

// Limits of tensor-parallel ranks in a grid, whose exchanges read weights.
std::string lacks_on_grids(const Layout& layout) {
  if (!layout.has_grid()) return "";
  const auto with = [&](bool needed, const char* what, const char* allowed) {
    return lacks(needed, "tp_grid=" + text_of(layout.grid) + " together with " + what, allowed);
  };
  return first_of({with(layout.zero == 3, "zero=3", "zero=0 1 2"),
                   with(layout.recompute == Recompute::selective, "recompute=selective", "recompute=none full"),
                   with(layout.offload.activations != Offload::none || evicts_activations(layout),
                        "activations that leave the device", "activations on the device")});
}

// On a grid the last exchange of a weight's gradient comes after its last product, which a separate W would end with.
std::string split_on_grid(const Layout& layout) {
  if (!layout.has_grid()) return "";
  const schedules::Schedule schedule = schedule_of(layout);
  for (const auto& actions : schedule.of_rank) {
    for (const schedules::Action& action : actions) {
      if (action.op != schedules::Op::weight_gradient) continue;
      return lacks(true,
                   "tp_grid=" + text_of(layout.grid) + " with schedule=" + schedule.name + ", which splits backwards",
                   "a schedule such as 1f1b");
    }
  }
  return "";
}

// Limits of schedules that train on old weights.
std::string lacks_old_weights(const Model& model, const Layout& layout) {
  const schedules::Versions versions = versions_of(layout);
  if (versions == schedules::Versions::one) return "";
  const auto with = [&](bool needed, const std::string& what, const char* allowed) {
    return lacks(needed, "schedule " + layout.schedule + ", which trains on old weights, together with " + what,
                 allowed);
  };
  // Sums over several ranks at the end of a step, and decisions that need all gradients there, are excluded.
  const bool sums = versions != schedules::Versions::double_buffered;
  return first_of({with(zero_of(layout) > 0, "zero=" + number(layout.zero), "zero=0"),
                   with(layout.offload.any(), "offload", "offload=none"),
                   with(layout.fp8 != Fp8::none, "8-bit floats", "fp8=none"),
                   with(sums && model.tied_embeddings && layout.pp > 1, "tied_embeddings=yes", "tied_embeddings=no"),
                   with(sums && model.experts > 0, "experts=" + number(model.experts), "experts=0"),
                   with(sums && layout.sequence_parallel, "sp=yes", "sp=no"),
                   with(sums && layout.has_grid(), "tp_grid=" + text_of(layout.grid), "tp_grid=none"),
                   with(sums && layout.compute == core::DType::f16, "dtype=f16", "dtype=f32 bf16")});
}

// Names what the trainer lacks that the step needs; the simulator may have more.
std::string lacks_of_trainer(const Model& model, const Layout& layout) {
  const bool keeps_scores = layout.cp > 1 && layout.cp_way == ContextWay::colossal;
  return first_of(
      {lacks_for_experts(model, layout), lacks_moves(model, layout), lacks_on_grids(layout),
       lacks(model.dropout, model.name,
             "models without dropout, such as nano, gpt2-124m, llama-nano or hidden=256,layers=4,heads=4,dropout=no"),
       lacks(keeps_scores && model.kv_heads < model.heads, "cp_way=colossal with fewer heads of keys than of queries",
             "cp_way=ring zigzag allgather ulysses lightseq"),
       lacks(!layout.flash && !keeps_scores, "attention that keeps its scores", "flash=yes, or cp_way=colossal"),
       lacks(layout.scatter_gather, "scatter_gather", "scatter_gather=no"), lacks_old_weights(model, layout)});
}

// A rule on the layout alone.
template <auto rule>
std::string of_layout(const Model& /*model*/, const Layout& layout) {
  return rule(layout);
}

// Why a layout does not fit a model: for all that build a step. Each may rely on the rules before it.
using LayoutRule = std::string (*)(const Model& model, const Layout& layout);
constexpr std::array<LayoutRule, 19> kRules{tensor_conflict,
                                            sequence_conflict,
                                            expert_conflict,
                                            of_layout<shard_conflict>,
                                            of_layout<secondary_conflict>,
                                            of_layout<near_conflict>,
                                            partition_conflict,
                                            tile_conflict,
                                            of_layout<gather_conflict>,
                                            of_layout<gradient_conflict>,
                                            of_layout<compression_conflict>,
                                            fp8_conflict,
                                            offload_conflict,
                                            of_layout<schedule_conflict>,
                                            of_layout<order_conflict>,
                                            of_layout<update_conflict>,
                                            slice_conflict,
                                            of_layout<evicting_conflict>,
                                            split_conflict};

}  // namespace

std::string must_divide(const std::string& what, std::int64_t value, const std::string& of, std::int64_t total) {
  if (total % value == 0) return "";
  return what + " is " + number(value) + ", and " + of + " is " + number(total) + "; allowed: " + divisors_of(total);
}

std::string untrainable(const schedules::CatalogueEntry& entry, const schedules::Schedule& schedule) {
  if (entry.takes_slices && schedule.slices() == 1) {
    return fmt::format("the schedule {} cuts sequences into slices, and slices is 1; allowed: slices of at least 2",
                       entry.name);
  }
  if (!entry.evicts || evicts_activations(schedule)) return "";
  return fmt::format(
      "the schedule {} moves activations to other ranks, and {} ranks and {} microbatches need not; allowed: pp of at "
      "least 4, and at least as many microbatches",
      entry.name, schedule.num_ranks(), schedule.num_microbatches);
}

std::string why_invalid(const Model& model, const Layout& layout) {
  for (const LayoutRule rule : kRules) {
    if (std::string why = rule(model, layout); !why.empty()) return why;
  }
  return "";
}

std::string why_not_trained(const Model& model, const Layout& layout) {
  if (std::string why = lacks_of_trainer(model, layout); !why.empty()) return why;
  std::string why = why_invalid(model, layout);
  if (why.empty()) {
    if (std::string split = split_on_grid(layout); !split.empty()) return split;
  }
  const schedules::CatalogueEntry& entry = schedules::entry_named(layout.schedule);
  if (why.empty() && !layout.own_schedule && (entry.takes_slices || entry.evicts)) {
    why = untrainable(entry, schedule_of(layout));
  }
  return why.empty() ? "" : "layout: " + why;
}

}  // namespace lockstep::workload
