// Times of the collectives of a layout on a machine, by formula.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "schedules/passes/split_stages.h"
#include "schedules/step/lower.h"
#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "workload/build_step.h"
#include "workload/groups.h"
#include "workload/layout.h"

namespace lockstep::simulator {

// The placement of ranks on a machine: for each level from the innermost, the largest number of members that one switch
// joins.
std::vector<std::int64_t> members_per_level(const Machine& machine, std::span<const workload::RankSet> members);

// Returns the time of a collective in a group, in picoseconds. `bytes`: payload as in Task::amount.
using CollectivePrice =
    std::function<std::int64_t(schedules::Comm comm, schedules::GroupKind group, std::int64_t bytes)>;
// Prices with the group's real size and the placement of the first rank's group.
CollectivePrice price_in(const workload::Model& model, const workload::Layout& layout,
                         const schedules::Schedule& schedule, const Machine& machine);

// Time until a kernel and a collective that start together have both ended: the collective takes the share `taken` of
// the kernel's rate while it runs (simulate()).
std::int64_t together_ps(std::int64_t kernel_ps, std::int64_t collective_ps, double taken);

// A recipe's total times, for simulation without its pieces: kernels and collectives in sequence, overlapped ones by
// together_ps(). Input and weight gradient together are the full backward, which may take less than both separately as
// it hides more.
schedules::StageCosts totals_of(const workload::StageWork& work, const CollectivePrice& price, double taken = 0);

// Recipes with fewer pieces and the same time.

// For searches over many layouts: a layer becomes one kernel. Collectives add their time to the kernel before them,
// those `beside_next` extend the next kernel, and consecutive kernels of one part become one. Exact if the members of
// such a group do equal work, except that a collective beside the next action's kernel counts in full.
schedules::StageRecipe fold_pieces(const schedules::StageRecipe& recipe, const CollectivePrice& price,
                                   double taken = 0);

// Consecutive kernels of one part become one piece, unless a collective overlaps the first of them. The step takes
// exactly as long, with a quarter of the events.
schedules::StageRecipe merge_kernels(const schedules::StageRecipe& recipe);

// Compressed collectives of gradients and weights (workload/compression.h) as tasks of a step: encoding kernels,
// exchanges, decoding kernels. They follow each other in the collective's lane, as in the trainer's thread for it;
// their contention with the device's other kernels is not priced.

// Replaces collectives according to Layout::compression and Layout::weight_compression.
void compress_collectives(schedules::Step& step, const workload::Layout& layout, const Machine& machine);

}  // namespace lockstep::simulator
