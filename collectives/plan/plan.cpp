#include "collectives/plan/plan.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace lockstep::plan {

std::string_view name_of(Op op) {
  switch (op) {
    case Op::send:
      return "send";
    case Op::recv:
      return "recv";
    case Op::recv_reduce:
      return "recv_reduce";
    case Op::copy:
      return "copy";
    case Op::reduce:
      return "reduce";
  }
  return "?";
}

std::string_view name_of(Buffer buffer) {
  switch (buffer) {
    case Buffer::input:
      return "input";
    case Buffer::output:
      return "output";
    case Buffer::scratch:
      return "scratch";
  }
  return "?";
}

int input_chunks(const Plan& plan, int rank) {
  return collectives::input_blocks(plan.kind, plan.num_ranks, plan.root, rank) * plan.chunks_per_block;
}

int output_chunks(const Plan& plan, int rank) {
  return collectives::output_blocks(plan.kind, plan.num_ranks, plan.root, rank) * plan.chunks_per_block;
}

int num_lanes(const Plan& plan) {
  std::size_t most = 0;
  for (const RankSteps& rank : plan.ranks) most = std::max(most, rank.lanes.size());
  return static_cast<int>(most);
}

PlanBuilder::PlanBuilder(collectives::Kind kind, int num_ranks, int root, int chunks_per_block) {
  LOCKSTEP_CHECK(num_ranks >= 1 && chunks_per_block >= 1 && root >= 0 && root < num_ranks, "bad plan shape");
  plan_.kind = kind;
  plan_.num_ranks = num_ranks;
  plan_.root = root;
  plan_.chunks_per_block = chunks_per_block;
  plan_.ranks.resize(static_cast<std::size_t>(num_ranks));
}

int PlanBuilder::append(int rank, int lane, const Step& step) {
  auto& lanes = plan_.ranks.at(static_cast<std::size_t>(rank)).lanes;
  if (lanes.size() <= static_cast<std::size_t>(lane)) lanes.resize(static_cast<std::size_t>(lane) + 1);
  Lane& steps = lanes[static_cast<std::size_t>(lane)];
  steps.push_back(step);
  return static_cast<int>(steps.size()) - 1;
}

int PlanBuilder::send(int rank, int peer, Slice src, int lane, After after) {
  return append(rank, lane, {Op::send, peer, src, {}, after});
}

int PlanBuilder::recv(int rank, int peer, Slice dst, int lane, After after) {
  return append(rank, lane, {Op::recv, peer, {}, dst, after});
}

int PlanBuilder::recv_reduce(int rank, int peer, Slice dst, Slice src, int lane, After after) {
  return append(rank, lane, {Op::recv_reduce, peer, src, dst, after});
}

int PlanBuilder::copy(int rank, Slice dst, Slice src, int lane, After after) {
  return append(rank, lane, {Op::copy, -1, src, dst, after});
}

int PlanBuilder::reduce(int rank, Slice dst, Slice src, int lane, After after) {
  return append(rank, lane, {Op::reduce, -1, src, dst, after});
}

void PlanBuilder::transfer(int from, int to, Slice src, Slice dst, int lane) {
  send(from, to, src, lane);
  recv(to, from, dst, lane);
}

int PlanBuilder::take_scratch(int chunks) {
  return std::exchange(plan_.scratch_chunks, plan_.scratch_chunks + chunks);
}

Plan PlanBuilder::finish(std::string algorithm) {
  plan_.algorithm = std::move(algorithm);
  return std::move(plan_);
}

}  // namespace lockstep::plan
