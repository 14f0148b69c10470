// Times of the collectives of a layout on a machine, by formula.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "schedules/step/lower.h"
#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "workload/build_step.h"
#include "workload/groups.h"

namespace lockstep::simulator {

// How ranks lie on a machine, for each level from the innermost: the most members that one switch of it joins.
std::vector<std::int64_t> members_a_level(const Machine& machine, std::span<const workload::RankSet> members);

// The time of a collective of `bytes` in a group (payload as Task::amount), in picoseconds.
using CollectivePrice =
    std::function<std::int64_t(schedules::Comm comm, schedules::GroupKind group, std::int64_t bytes)>;
// With the group's true size, as it lies for the first rank of the layout.
CollectivePrice price_in(const workload::Model& model, const workload::Layout& layout,
                         const schedules::Schedule& schedule, const Machine& machine);

// A kernel and a collective that start together, until both have ended: the collective takes `taken` of the kernel's
// rate while it runs (simulate()).
std::int64_t together_ps(std::int64_t kernel_ps, std::int64_t collective_ps, double taken);

// A recipe's totals, for simulation without its pieces: kernels and collectives one after the other, a collective
// beside a kernel as together_ps(). Input and weight gradient together are the full backward, which may take less
// than both alone as it hides more.
schedules::StageCosts totals_of(const workload::StageWork& work, const CollectivePrice& price, double taken = 0);

}  // namespace lockstep::simulator
