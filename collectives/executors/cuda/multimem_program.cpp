#include "collectives/executors/cuda/multimem_program.h"

#include <algorithm>
#include <set>
#include <span>

#include "collectives/plan/lower.h"

namespace lockstep::executors::cuda {
namespace {

using collectives::Operation;
using core::DType;
using core::ReduceOp;
using plan::Place;

constexpr std::int64_t kAccessBytes = 16;  // of a multimem instruction, at most

// One span of scratch, on every rank once.
bool on_all_ranks(std::span<const Place> places, int num_ranks) {
  if (num_ranks < 2 || static_cast<int>(places.size()) != num_ranks) return false;
  std::set<int> ranks;
  for (const Place& p : places) {
    if (p.buffer != plan::Buffer::scratch || p.offset_bytes != places.front().offset_bytes) return false;
    ranks.insert(p.rank);
  }
  return static_cast<int>(ranks.size()) == num_ranks;
}

bool whole_accesses(std::span<const Place> places, std::int64_t size_bytes) {
  return size_bytes % kAccessBytes == 0 && places.front().offset_bytes % kAccessBytes == 0;
}

bool has_work(const plan::Program& program, const Operation& operation) {
  for (const plan::RankProgram& rank : program.ranks) {
    for (const plan::LaneProgram& lane : rank.lanes) {
      for (const plan::Instruction& one : lane.instructions) {
        const Multimem what = multimem_of(program, lane, one, operation);
        if (what.loads || what.stores) return true;
      }
    }
  }
  return false;
}

}  // namespace

// Table of .op and base type for sm_90 (PTX ISA 9.7.9.14): no product, no bytes, no f8, and of minima and maxima
// neither f32 nor f64. An average of 16-bit elements would be rounded twice.
bool has_multimem(DType dtype, ReduceOp op) {
  constexpr DType kIntegers[] = {DType::i32, DType::u32, DType::i64, DType::u64};
  constexpr DType kWhole[] = {DType::f32, DType::f64};
  const auto among = [dtype](std::span<const DType> some) {
    return std::find(some.begin(), some.end(), dtype) != some.end();
  };
  const bool narrow = dtype == DType::bf16 || dtype == DType::f16;
  switch (op) {
    case ReduceOp::sum:
      return narrow || among(kWhole) || among(kIntegers);
    case ReduceOp::avg:
      return among(kWhole) || among(kIntegers);
    case ReduceOp::min:
    case ReduceOp::max:
      return narrow || among(kIntegers);
    case ReduceOp::prod:
      return false;
  }
  return false;
}

Multimem multimem_of(const plan::Program& program, const plan::LaneProgram& lane, const plan::Instruction& instruction,
                     const Operation& operation) {
  if (instruction.num_destinations == 0 || instruction.count == 0) return {};
  const bool reduces = has_op(operation.kind);
  if (reduces && !has_multimem(operation.dtype, operation.op)) return {};
  const auto sources = lane.sources_of(instruction);
  const auto destinations = lane.destinations_of(instruction);
  const std::int64_t size_bytes = instruction.count * static_cast<std::int64_t>(core::size_of(operation.dtype));
  const bool whole = whole_accesses(sources, size_bytes) && whole_accesses(destinations, size_bytes);
  const bool loads = whole && reduces && on_all_ranks(sources, program.num_ranks);
  const bool stores = whole && (loads || sources.size() == 1) && on_all_ranks(destinations, program.num_ranks);
  return {.loads = loads, .stores = stores};
}

std::optional<plan::Program> lower_for_multimem(const plan::Plan& plan, const Operation& operation) {
  if (plan::num_lanes(plan) > 1) return std::nullopt;
  const plan::Plan symmetric = plan::stage_output(plan::stage_input(plan));
  plan::Program program = plan::lower(symmetric, operation, {.segments = 1, .fuse = true, .push = true});
  if (!has_work(program, operation) || plan::find_deadlock(program)) return std::nullopt;
  return program;
}

}  // namespace lockstep::executors::cuda
