#include "simulator/predict/step_groups.h"

#include <map>
#include <utility>

namespace lockstep::simulator {
namespace {

using schedules::GroupKind;

constexpr RepeatedGroup kRepeated[] = {
    {GroupKind::tensor, Group::tensor},     {GroupKind::context, Group::context},
    {GroupKind::expert, Group::expert},     {GroupKind::data, Group::shards},
    {GroupKind::replicas, Group::replicas}, {GroupKind::expert_data, Group::expert_data}};

// Ranks of one pipeline.
std::int64_t place_ranks(const Layout& layout) {
  return layout.ranks() / layout.pp;
}

void add(StepGroups& made, schedules::Group group, std::vector<std::int64_t> members) {
  group.members = members.empty() ? 1 : members.back();
  made.groups.push_back(std::move(group));
  made.members.push_back(std::move(members));
}

// Places of the pipeline whose ranks of one data place are together: first and last, or two copies.
RankSet places(const Layout& layout, const std::vector<std::int32_t>& ranks, std::int64_t offset) {
  const std::int64_t first = ranks.front() * place_ranks(layout) + offset;
  const std::int64_t stride = ranks.size() > 1 ? (ranks[1] - ranks[0]) * place_ranks(layout) : 1;
  return {first, stride, static_cast<std::int64_t>(ranks.size())};
}

void add_places(StepGroups& made, const Layout& layout, const Machine& machine, schedules::Group group) {
  std::vector<std::int64_t> members = members_a_level(machine, places(layout, group.ranks, 0));
  add(made, std::move(group), std::move(members));
}

}  // namespace

std::span<const RepeatedGroup> repeated_groups() {
  return kRepeated;
}

StepGroups groups_of_pipeline(const Model& model, const Layout& layout, const Machine& machine,
                              const std::vector<schedules::Group>& copies) {
  StepGroups made;
  for (const RepeatedGroup& repeated : kRepeated) {
    for (std::int32_t r = 0; r < layout.pp; ++r) {
      add(made, {repeated.kind, {r}},
          members_a_level(machine, group_of(layout, repeated.of_layout, r * place_ranks(layout))));
    }
  }
  for (const schedules::Group& pair : copies) add_places(made, layout, machine, pair);
  if (model.tied_embeddings && layout.pp > 1) {
    add_places(made, layout, machine, {GroupKind::embedding, {0, layout.pp - 1}});
  }
  schedules::Group world{GroupKind::world, {}};
  for (std::int32_t r = 0; r < layout.pp; ++r) world.ranks.push_back(r);
  add(made, std::move(world), members_a_level(machine, {0, 1, layout.ranks()}));
  return made;
}

namespace {

class Unfolding {
 public:
  Unfolding(const schedules::Step& pipeline, const Layout& layout, const Machine& machine)
      : pipeline_(pipeline), layout_(layout), machine_(machine) {}

  WholeStep run() {
    made_.step = pipeline_;
    made_.step.of_rank.clear();
    made_.step.groups.clear();
    for (std::int64_t rank = 0; rank < layout_.ranks(); ++rank) add_rank(rank);
    made_.step.groups = made_.groups.groups;
    return std::move(made_);
  }

 private:
  void add_rank(std::int64_t rank) {
    const std::int64_t place = rank / place_ranks(layout_);
    const std::int64_t offset = rank % place_ranks(layout_);
    schedules::RankStep copy = pipeline_.of_rank[static_cast<std::size_t>(place)];
    for (schedules::Task& task : copy.tasks) {
      if (task.comm != schedules::Comm::none) {
        task.peer = whole_group(task.peer, rank, offset);
      } else if (task.peer >= 0) {
        task.peer = static_cast<std::int32_t>(task.peer * place_ranks(layout_) + offset);
      }
    }
    made_.step.of_rank.push_back(std::move(copy));
  }

  // The group of all members that a rank's group of the pipeline stands for.
  std::int32_t whole_group(std::int32_t folded, std::int64_t rank, std::int64_t offset) {
    const schedules::Group& group = pipeline_.groups[static_cast<std::size_t>(folded)];
    const RankSet set = set_of(group, rank, offset);
    const auto [at, is_new] =
        known_.try_emplace({folded, set.first}, static_cast<std::int32_t>(made_.groups.groups.size()));
    if (is_new) {
      schedules::Group whole{group.kind, {}};
      for (std::int64_t i = 0; i < set.count; ++i) whole.ranks.push_back(static_cast<std::int32_t>(set.at(i)));
      add(made_.groups, std::move(whole), members_a_level(machine_, set));
    }
    return at->second;
  }

  RankSet set_of(const schedules::Group& group, std::int64_t rank, std::int64_t offset) const {
    for (const RepeatedGroup& repeated : kRepeated) {
      if (repeated.kind == group.kind) return group_of(layout_, repeated.of_layout, rank);
    }
    if (group.kind == GroupKind::world) return {0, 1, layout_.ranks()};
    return places(layout_, group.ranks, offset);
  }

  const schedules::Step& pipeline_;
  const Layout& layout_;
  const Machine& machine_;
  WholeStep made_;
  std::map<std::pair<std::int32_t, std::int64_t>, std::int32_t> known_;
};

}  // namespace

WholeStep unfold(const schedules::Step& pipeline, const Layout& layout, const Machine& machine) {
  return Unfolding(pipeline, layout, machine).run();
}

}  // namespace lockstep::simulator
