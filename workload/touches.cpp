#include "workload/touches.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::workload {
namespace {

using schedules::Task;
using T = TensorName;

std::int64_t rows_of_all(const Model& model, const Layout& layout) {
  return layout.microbatch_size * model.sequence / layout.cp;
}

// Numbers per row (mean and 1 / deviation, or only the latter), and gradients per column (gamma's and beta's, or only
// gamma's).
std::int64_t numbers_of_norm(const Model& model) {
  return model.norm == Norm::layer ? 2 : 1;
}

// Rows that an expert-parallel rank sends, and that its experts have: without a capacity it receives as many as it
// sends, if the router is even.
std::int64_t copies_of(const Model& model, std::int64_t tokens) {
  const std::int64_t capacity = capacity_of(model, tokens);
  return capacity > 0 ? capacity * model.experts : tokens * model.experts_per_token;
}

std::int64_t bytes_of(const Model& model, const Layout& layout, T name) {
  const auto compute = static_cast<std::int64_t>(core::size_of(layout.compute));
  constexpr std::int64_t kFloat = sizeof(float);  // also the size of an id
  const std::int64_t rows = rows_of_all(model, layout);
  const std::int64_t own_rows = rows / row_parts(layout);
  const std::int64_t side = layout.grid.side;  // 1 without a grid
  const std::int64_t own_columns = model.hidden / side;
  const std::int64_t loss_rows = layout.has_grid() ? own_rows : rows;
  const std::int64_t all = compute * side * loss_rows * own_columns;  // rows of all ranks that sum or gather them
  const std::int64_t copies = model.experts > 0 ? copies_of(model, rows) : 0;
  const std::int64_t mlp_rows = model.experts > 0 ? copies : rows;
  switch (name) {
    case T::norm1:
    case T::norm2:
    case T::norm_sums:
      return numbers_of_norm(model) * kFloat * own_rows;
    case T::qkv:
    case T::d_qkv:
    case T::d_qkv_part:
      return compute * rows * (model.heads + 2 * model.kv_heads) * model.head_size / layout.tp;
    case T::o:
    case T::d_o:
    case T::o_part:
      return compute * rows * model.heads * model.head_size / layout.tp;
    case T::lse:
    case T::lse_part:
      return kFloat * rows * model.heads / layout.tp;
    case T::pre:
    case T::d_pre:
      return (model.gated ? 2 : 1) * compute * mlp_rows * model.ffn_hidden / layout.tp / layout.mlp_tiles;
    case T::act:
    case T::d_act:
      return compute * mlp_rows * model.ffn_hidden / layout.tp / layout.mlp_tiles;
    case T::shared_pre:
    case T::d_shared_pre:
      return (model.gated ? 2 : 1) * compute * rows * model.shared_hidden / layout.tp;
    case T::shared_act:
    case T::d_shared_act:
      return compute * rows * model.shared_hidden / layout.tp;
    case T::router_logits:
    case T::d_router_logits:
      return compute * rows * model.experts;
    case T::choices:
    case T::gates:
    case T::slots:
    case T::d_gates:
      return kFloat * rows * model.experts_per_token;
    case T::counts:
      return kFloat * model.experts;
    case T::all_counts:
      return kFloat * model.experts * layout.ep;
    case T::copies:
      return kFloat * copies;
    case T::sent:
    case T::here:
    case T::out:
    case T::back:
    case T::d_back:
    case T::d_out:
    case T::d_here:
    case T::d_sent:
      return compute * copies * model.hidden;
    case T::n1_all:
    case T::n2_all:
    case T::d_all:
    case T::dh_all:
    case T::term1:
    case T::term2:
    case T::d_term1:
    case T::d_term2:
      return all;
    case T::x_part:
      return all / layout.tp;
    case T::held1:
    case T::held2:
      return numbers_of_norm(model) * kFloat * own_columns;
    case T::logits:
      return compute * loss_rows * words_per_rank(model, layout);
    case T::stats:
      return 3 * kFloat * loss_rows;
    case T::all_stats:
      return 3 * kFloat * loss_rows * column_ranks(layout);
    case T::tokens:
      return kFloat * side * loss_rows;
    case T::targets:
    case T::losses:
      return kFloat * loss_rows;
    default:
      return compute * own_rows * own_columns;
  }
}

MemoryKind kind_of(T name) {
  switch (name) {
    case T::n1_all:
    case T::n2_all:
    case T::d_all:
    case T::dh_all:
    case T::tokens:
    case T::targets:
    case T::stats:
    case T::all_stats:
    case T::losses:
    case T::norm_sums:
    case T::choices:
    case T::gates:
    case T::counts:
    case T::slots:
    case T::copies:
    case T::all_counts:
    case T::d_gates:
      return MemoryKind::buffers;
    case T::held1:
    case T::held2:
      return MemoryKind::gradients;
    default:
      return MemoryKind::activations;
  }
}

// ---- activations that are offloaded

using PartKey = std::tuple<std::int32_t, std::int32_t, std::int32_t>;  // stage, microbatch, part
PartKey part_of(const TensorKey& key) {
  return {key.stage, key.microbatch, key.part};
}
PartKey part_of(const Task& task) {
  return {task.stage, task.microbatch, task.part};
}

// with_copies()
class Copies {
 public:
  Copies(const std::vector<MemoryEvent>& events, const std::vector<Task>& tasks) : events_(events), tasks_(tasks) {
    for (std::size_t i = 0; i < events.size(); ++i) {
      const MemoryEvent& event = events[i];
      if (event.copies) copies_of_[part_of(tasks[*event.copies])].push_back(i);
      if (event.touch && event.touch->kind == MemoryKind::activations) {
        touches_of_[part_of(event.touch->key)][event.touch->key].push_back(i);
      }
    }
  }

  // The events with these touches inserted; fills in the bytes of each task.
  std::vector<MemoryEvent> put_in(std::vector<std::int64_t>& bytes) const {
    std::map<std::size_t, std::vector<Touch>> touches;  // by event
    for (const auto& [part, touches_of_part] : touches_of_) {
      for (const std::int32_t copied : {std::get<2>(part), kAllParts}) {
        const auto found = copies_of_.find({std::get<0>(part), std::get<1>(part), copied});
        if (found == copies_of_.end()) continue;
        const std::vector<std::size_t>& copies = found->second;
        for (std::size_t c = 0; c + 1 < copies.size(); c += 2) find(touches_of_part, copies[c], copies[c + 1], touches);
      }
    }
    std::vector<MemoryEvent> all;
    for (std::size_t i = 0; i < events_.size(); ++i) {
      if (!events_[i].copies) {
        all.push_back(events_[i]);
        continue;
      }
      std::int64_t& moved = bytes[*events_[i].copies];
      for (const Touch& touch : touches[i]) moved += touch.bytes;
      const std::int64_t message = schedules::is_of_eviction(tasks_[*events_[i].copies].op) ? moved : 0;
      all.push_back({.kind = MemoryKind::buffers, .bytes = message});
      for (const Touch& touch : touches[i]) all.push_back({.touch = touch});
      all.push_back({.ends_phase = true});
      all.push_back({.kind = MemoryKind::buffers, .bytes = -message});
    }
    return all;
  }

 private:
  using Places = std::map<TensorKey, std::vector<std::size_t>>;  // events that touch each tensor

  void find(const Places& of_part, std::size_t offload, std::size_t load,
            std::map<std::size_t, std::vector<Touch>>& touches) const {
    for (const auto& [key, places] : of_part) {
      const auto next = std::upper_bound(places.begin(), places.end(), offload);
      if (next == places.begin() || next == places.end() || events_[*next].touch->makes) continue;
      LOCKSTEP_CHECK(*next > load, "a tensor that is offloaded is used before it comes back");
      Touch touch = *events_[*next].touch;
      touches[offload].push_back(touch);
      touch.makes = true;
      touches[load].push_back(touch);
    }
  }

  static constexpr std::int32_t kAllParts = -1;  // EVICT and FETCH

  const std::vector<MemoryEvent>& events_;
  const std::vector<Task>& tasks_;
  std::map<PartKey, std::vector<std::size_t>> copies_of_;  // tasks off the device and back alternately, by their events
  std::map<PartKey, Places> touches_of_;
};

}  // namespace

Touch touch_of(const Model& model, const Layout& layout, const TensorKey& key, bool makes) {
  return {key, makes, kind_of(key.name), bytes_of(model, layout, key.name)};
}

void add_held(const std::vector<Task>& others, const std::vector<std::int64_t>& others_bytes,
              const std::vector<Task>& tasks, std::vector<std::int64_t>& bytes) {
  std::map<std::pair<std::int32_t, std::int32_t>, std::int64_t> evicted;  // by stage and microbatch
  for (std::size_t i = 0; i < others.size(); ++i) {
    if (others[i].op == schedules::Op::evict) evicted[{others[i].stage, others[i].microbatch}] = others_bytes[i];
  }
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const bool is_held = tasks[i].op == schedules::Op::hold || tasks[i].op == schedules::Op::yield;
    if (is_held) bytes[i] = evicted.at({tasks[i].stage, tasks[i].microbatch});
  }
}

std::vector<Model> models_of_slices(const Model& model, const Layout& layout) {
  std::vector<Model> models;
  for (const std::int64_t tokens : tokens_of_slices(model, layout)) {
    models.push_back(model);
    models.back().sequence = tokens;
  }
  return models;
}

Layout with_slice_tokens(const Model& model, Layout layout) {
  layout.slice_tokens = tokens_of_slices(model, layout);
  return layout;
}

HeldBytes held_after(const BytesByKind& before, const std::vector<MemoryEvent>& events) {
  std::vector<bool> is_last(events.size(), false);
  std::map<TensorKey, bool> made_next;  // whether the next touch of a tensor makes it
  for (std::size_t i = events.size(); i-- > 0;) {
    if (!events[i].touch) continue;
    const auto [later, is_new] = made_next.try_emplace(events[i].touch->key);
    is_last[i] = is_new || later->second;
    later->second = events[i].touch->makes;
  }
  for (const auto& [key, made] : made_next) LOCKSTEP_CHECK(made, "a tensor of a step is used, and nothing makes it");
  HeldBytes held(before);
  std::vector<const Touch*> ending;
  for (std::size_t i = 0; i < events.size(); ++i) {
    const MemoryEvent& event = events[i];
    if (event.bytes != 0) held.change(event.kind, event.bytes);
    if (event.touch && event.touch->makes) held.change(event.touch->kind, event.touch->bytes);
    if (is_last[i]) ending.push_back(&*event.touch);
    if (!event.ends_phase) continue;
    for (const Touch* const touch : ending) held.change(touch->kind, -touch->bytes);
    ending.clear();
  }
  return held;
}

std::vector<MemoryEvent> with_copies(const std::vector<MemoryEvent>& events, const std::vector<Task>& tasks,
                                     std::vector<std::int64_t>& bytes) {
  return Copies(events, tasks).put_in(bytes);
}

CopySlots slots_of_copies(const schedules::RankStep& rank, const std::vector<std::int64_t>& bytes) {
  CopySlots slots{.of_task = std::vector<CopySlot>(rank.tasks.size())};
  std::multimap<std::int64_t, std::int64_t> free;  // offsets by size
  std::map<std::tuple<std::int32_t, std::int32_t, std::int32_t>, CopySlot> away;
  for (std::size_t i = 0; i < rank.tasks.size(); ++i) {
    const Task& task = rank.tasks[i];
    const bool ends = task.op == schedules::Op::yield || (task.op == schedules::Op::load && copies_activations(task));
    const bool begins =
        task.op == schedules::Op::hold || (task.op == schedules::Op::offload && copies_activations(task));
    if ((!begins && !ends) || bytes[i] == 0) continue;
    const std::int64_t size = OffloadStaging::whole_blocks(bytes[i]);
    CopySlot& slot = slots.of_task[i];
    const std::tuple part(task.stage, task.microbatch, task.part);
    if (ends) {
      slot = away.at(part);
      away.erase(part);
      free.emplace(size, slot.offset);
      continue;
    }
    slot.bytes = bytes[i];
    if (const auto found = free.find(size); found != free.end()) {
      slot.offset = found->second;
      free.erase(found);
    } else {
      slot.offset = std::exchange(slots.room_bytes, slots.room_bytes + size);
    }
    LOCKSTEP_CHECK(away.emplace(part, slot).second, "a part is moved away once");
  }
  LOCKSTEP_CHECK(away.empty(), "everything moved away comes back");
  return slots;
}

}  // namespace lockstep::workload
