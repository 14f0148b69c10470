// Times of kernels on a device, of the host that launches them, and of a layout's collectives.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "schedules/passes/passes.h"
#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "workload/build_step.h"
#include "workload/layout.h"
#include "workload/operations.h"
#include "workload/parameters.h"

namespace lockstep::simulator {

// The time of a matrix product on the multiprocessors of a GPU, by its shape (NVIDIA, "Matrix Multiplication Background
// User's Guide", DU-09799-001, 2023, sections 2.1, 2.3 and 3).
//
// The result is cut into tiles, of which each multiprocessor works on one at a time: a tile at the edge costs as much
// as a whole one, and a last wave with few tiles as much as a full one. Smaller tiles fill more multiprocessors, but
// load more values for each multiply-add. Where tiles are few and k is long, several multiprocessors share a tile
// (split-k). cuBLAS chooses among tiles and splits; here the fastest by these formulas is taken:
//
//   waves x (kTileUs + (tm tn + kLoad (tm + tn)) k / split / multiply-adds a microsecond) + kSplitUs if split > 1
//
// docs/validation.md (Products) holds them to published times on A100 and H100.

// Microseconds, without the kernel's launch; `tflops`: what full waves of the largest tile reach. The device's number
// of multiprocessors is known. Loads from memory may take longer.
double product_us(const DeviceSpec& device, const workload::Product& product, double tflops);

// The time of a kernel on a device: the roofline, with the shares of the peaks that work of its size reaches, and waves
// of tiles for matrix products if the device's number of multiprocessors is known.

// Time of one of the call's `count` kernels: max(FLOPs / (peak x share), bytes / (bandwidth x share)) + launch, in
// picoseconds. Products and attention in f32 run at the device's f32 peak.
std::int64_t kernel_ps(const DeviceSpec& device, const workload::KernelCall& call);

// The roofline itself, of a kernel of which nothing else is known: max(FLOPs / peak of matrix units, bytes /
// bandwidth), in picoseconds.
std::int64_t roofline_ps(const DeviceSpec& device, double flops, double bytes);

// The measured time (Machine::measured) while `copies` of the kernel run at the same time, interpolated linearly over
// the number of copies; if it was not measured, the time by formula.
std::int64_t kernel_ps(const Machine& machine, const workload::KernelCall& call, std::int32_t copies = 1);
// The least of these over all numbers of copies: by noise, several copies may have been faster than one.
std::int64_t least_kernel_ps(const Machine& machine, const workload::KernelCall& call);
bool is_measured(const Machine& machine, const workload::KernelCall& call);

// Host time of a step: an eager framework calls one operator after another, and the device waits if its kernels are
// shorter than that (docs/simulator.md, section The host). The simulator's engine plays it.

// Counted in Megatron-LM's layer (megatron/model/transformer.py, 2023): about 30 calls of operators with a module's or
// an autograd function's Python around them for 13 kernels of the forward, and about 50 for 26 of the backward.
inline constexpr double kOperatorsOfKernel = 2;
// Operators per collective or message: the call, its output's allocation, two events and the wait of streams.
inline constexpr double kOperatorsOfExchange = 4;

// Operators per tensor of a list that a collective takes or makes: the view and the copy (ProcessGroupNCCL::allgather).
inline constexpr double kOperatorsOfListed = 2;

workload::IssueTimes issue_times_of(const Host& host, const workload::Layout& layout);

// Adds to a step the host times that its recipes do not have: to issue messages, the collectives of parameters and
// gradients, and the optimizer (one kernel's operators per parameter: the copies in 32 bits of the gradient and of the
// new weight). Also marks where the host waits for the device: at messages between stages that are not overlapped, as
// in Megatron-LM, which synchronizes the device after each.
void add_host(schedules::Step& step, const workload::Layout& layout, const std::vector<workload::StagePlan>& plans,
              const Host& host);

// Added time of a collective of parameters or gradients with gather_lists: a copy for each of its members.
std::int64_t list_ps(const Host& host, const workload::Layout& layout, const schedules::Group& group);

// Times of the collectives of a layout on a machine, by formula.

// The placement of ranks on a machine: for each level from the innermost, the largest number of members that one switch
// joins.
std::vector<std::int64_t> members_per_level(const Machine& machine, std::span<const workload::RankSet> members);

struct PricedCollective {
  std::int64_t ps = 0;
  double taken = 0;  // share of a concurrent kernel's rate that it takes
};
// Prices a collective in a group. `bytes`: payload as in Task::amount.
using CollectivePrice =
    std::function<PricedCollective(schedules::Comm comm, schedules::GroupKind group, std::int64_t bytes)>;
// Prices with the group's real size and the placement of the first rank's group.
CollectivePrice price_in(const workload::Model& model, const workload::Layout& layout,
                         const schedules::Schedule& schedule, const Machine& machine);

// Time until a kernel and a collective that start together have both ended: the collective takes the share `taken` of
// the kernel's rate while it runs (simulate()).
std::int64_t together_ps(std::int64_t kernel_ps, std::int64_t collective_ps, double taken);

// A recipe's total times, for simulation without its pieces: kernels and collectives in sequence, overlapped ones by
// together_ps(). Input and weight gradient together are the full backward, which may take less than both separately as
// it hides more.
schedules::StageCosts totals_of(const workload::StageWork& work, const CollectivePrice& price);

// Recipes with fewer pieces and the same time.

// For searches over many layouts: a layer becomes one kernel. Collectives add their time to the kernel before them,
// those `overlaps_next` extend the next kernel, and consecutive kernels of one part become one. Exact if the members of
// such a group do equal work, except that a collective during the next action's kernel counts in full.
schedules::StageRecipe fold_pieces(const schedules::StageRecipe& recipe, const CollectivePrice& price);

// Consecutive kernels of one part become one piece, unless a collective overlaps the first one. The step takes exactly
// as long, with a quarter of the events.
schedules::StageRecipe merge_kernels(const schedules::StageRecipe& recipe);

// Compressed collectives of gradients and weights (workload/compression.h) as tasks of a step: encoding kernels,
// exchanges, decoding kernels. They follow each other in the collective's lane, as in the trainer's thread for it;
// their contention with the device's other kernels is not priced.

// Replaces collectives according to Layout::compression and Layout::weight_compression.
void compress_collectives(schedules::Step& step, const workload::Layout& layout, const Machine& machine);

}  // namespace lockstep::simulator
