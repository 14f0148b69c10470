#include "simulator/predict/step_groups.h"

#include <utility>

#include "schedules/step/unfold.h"

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

// Of a group whose members are evenly spaced, as all groups of a layout are.
RankSet set_of(const std::vector<std::int32_t>& ranks) {
  const std::int64_t stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  return {ranks.front(), stride, static_cast<std::int64_t>(ranks.size())};
}

RankSet set_of(const Layout& layout, const schedules::Group& folded, std::int64_t rank) {
  for (const RepeatedGroup& repeated : kRepeated) {
    if (repeated.kind == folded.kind) return group_of(layout, repeated.of_layout, rank);
  }
  if (folded.kind == GroupKind::world) return {0, 1, layout.ranks()};
  return places(layout, folded.ranks, rank % place_ranks(layout));
}

}  // namespace

WholeStep unfold(const schedules::Step& pipeline, const Layout& layout, const Machine& machine) {
  WholeStep whole;
  whole.step = schedules::unfold(pipeline, static_cast<std::int32_t>(place_ranks(layout)),
                                 [&](const schedules::Group& folded, std::int32_t rank) {
                                   const RankSet set = set_of(layout, folded, rank);
                                   std::vector<std::int32_t> members;
                                   for (std::int64_t i = 0; i < set.count; ++i) {
                                     members.push_back(static_cast<std::int32_t>(set.at(i)));
                                   }
                                   return members;
                                 });
  for (const schedules::Group& group : whole.step.groups) {
    add(whole.groups, group, members_a_level(machine, set_of(group.ranks)));
  }
  whole.step.groups = whole.groups.groups;
  return whole;
}

}  // namespace lockstep::simulator
