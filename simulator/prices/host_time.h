// Host time of a step: an eager framework calls one operator after another, and the device waits if its kernels are
// shorter than that (docs/simulator.md, section The host). The simulator's engine plays it.
#pragma once

#include <cstdint>
#include <vector>

#include "schedules/step/step.h"
#include "simulator/machine/machine.h"
#include "workload/buckets.h"
#include "workload/layout.h"
#include "workload/recipe.h"

namespace lockstep::simulator {

// Counted in Megatron-LM's layer (megatron/model/transformer.py, 2023): about 30 calls of operators with a module's or
// an autograd function's Python around them for 13 kernels of the forward, and about 50 for 26 of the backward.
inline constexpr double kOperatorsOfKernel = 2;
// Operators per collective or message: the call, its output's allocation, two events and the wait of streams.
inline constexpr double kOperatorsOfExchange = 4;

// Operators per tensor of a list that a collective takes or makes: the view and the copy (ProcessGroupNCCL::allgather).
inline constexpr double kOperatorsOfListed = 2;

workload::IssueTimes issue_times_of(const Host& host, const workload::Layout& layout);

// Adds to a step the host times that its recipes do not have: to issue messages, the collectives of parameters and
// gradients, and the optimizer (one kernel's operators per parameter: the gradient's copy in 32 bits, and that of the
// new weight). Also marks where the host waits for the device: at messages between stages that are not overlapped, as
// in Megatron-LM, which synchronizes the device after each.
void add_host(schedules::Step& step, const workload::Layout& layout, const std::vector<workload::StagePlan>& plans,
              const Host& host);

// Added time of a collective of parameters or gradients with gather_lists: a copy for each of its members.
std::int64_t list_ps(const Host& host, const workload::Layout& layout, const schedules::Group& group);

}  // namespace lockstep::simulator
