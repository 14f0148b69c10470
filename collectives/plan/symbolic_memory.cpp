#include "collectives/plan/symbolic_memory.h"

#include <fmt/format.h>

namespace lockstep::plan {

SymbolicMemory::SymbolicMemory(const Plan& plan, const Locations& locations, bool in_place, int message_cells)
    : plan_(plan),
      locations_(locations),
      in_place_(in_place),
      symbols_(locations.size() + message_cells, plan.num_ranks, collectives::has_op(plan.kind)),
      expected_(at(locations.size())),
      write_stamp_(at(locations.size()), -1) {
  put_inputs();
  find_expected_outputs();
}

void SymbolicMemory::put_inputs() {
  for (int rank = 0; rank < plan_.num_ranks; ++rank) {
    for (int c = 0; c < input_chunks(plan_, rank); ++c) {
      symbols_.put_input(locations_.of(rank, input(c), 0), rank, c);
    }
  }
}

void SymbolicMemory::find_expected_outputs() {
  const int k = plan_.chunks_per_block;
  for (int rank = 0; rank < plan_.num_ranks; ++rank) {
    for (int c = 0; c < output_chunks(plan_, rank); ++c) {
      const auto origin = collectives::origin_of(plan_.kind, plan_.num_ranks, plan_.root, rank, c / k);
      expected_[at(locations_.of(rank, output(c), 0))] = {origin.reduced ? -1 : origin.rank, origin.block * k + c % k,
                                                          true};
    }
  }
}

std::string SymbolicMemory::run(int step_id, const StepPlace& where, const Step& step, std::span<const int> message,
                                Contents& contents) {
  std::string problem = writes_dst(step.op) ? refuse_write(step_id, where, step) : "";
  for (int i = 0; i < chunks_of(step) && problem.empty(); ++i) {
    const int cell = locations_.of(where.rank, step.op == Op::send ? step.src : step.dst, i);
    problem = step.op == Op::send ? run_send(cell, step.src, i, message) : run_write(where, step, i, message);
    if (problem.empty()) contents.set(step_id, i, symbols_.content(cell));
  }
  return problem;
}

std::string SymbolicMemory::refuse_write(int step_id, const StepPlace& where, const Step& step) {
  for (int i = 0; i < step.dst.count; ++i) {
    const int location = locations_.of(where.rank, step.dst, i);
    write_stamp_[at(location)] = step_id;
    if (step.dst.buffer == Buffer::input && locations_.output_chunk(location) < 0) {
      return fmt::format("writes input[{}], which {}", step.dst.first + i,
                         in_place_ ? "is no output chunk in place" : "must stay as it is");
    }
  }
  for (int i = 0; i < step.src.count && reads_src(step.op); ++i) {
    const int location = locations_.of(where.rank, step.src, i);
    if (write_stamp_[at(location)] == step_id && location != locations_.of(where.rank, step.dst, i)) {
      return "src and dst overlap without being the same";
    }
  }
  return "";
}

std::string SymbolicMemory::run_send(int source, const Slice& src, int i, std::span<const int> message) {
  std::string problem = refuse_read(source, src, i);
  if (problem.empty() && !message.empty()) symbols_.copy(message[at(i)], source);
  return problem;
}

std::string SymbolicMemory::run_write(const StepPlace& where, const Step& step, int i, std::span<const int> message) {
  const int target = locations_.of(where.rank, step.dst, i);
  const int source = reads_src(step.op) ? locations_.of(where.rank, step.src, i) : message[at(i)];
  std::string problem = reads_src(step.op) ? refuse_read(source, step.src, i) : "";
  if (problem.empty() && reads_dst(step.op)) problem = refuse_read(target, step.dst, i);
  if (!problem.empty()) return problem;
  if (!reads_dst(step.op)) symbols_.copy(target, source);
  if (step.op == Op::reduce) problem = add(target, source);
  if (step.op == Op::recv_reduce) problem = add(target, message[at(i)]);
  return problem.empty() ? refuse_size(target) : problem;
}

std::string SymbolicMemory::refuse_read(int cell, const Slice& slice, int i) const {
  if (!symbols_.empty(cell)) return "";
  return fmt::format("reads {}[{}], to which nothing was written", name_of(slice.buffer), slice.first + i);
}

std::string SymbolicMemory::add(int target, int source) {
  if (symbols_.add(target, source)) return "";
  const bool same_chunk = symbols_.content(target).chunk == symbols_.content(source).chunk;
  return fmt::format("reduces {} with {}: {}", symbols_.describe(target), symbols_.describe(source),
                     same_chunk ? "a contribution would count twice" : "these are different chunks");
}

// On the way to its final content, an output chunk may hold only data that has its size for every count of elements.
std::string SymbolicMemory::refuse_size(int location) const {
  if (locations_.output_chunk(location) < 0) return "";
  const Moved is = symbols_.content(location);
  const Moved& want = expected_[at(location)];
  const bool fits = plan_.kind == collectives::Kind::all_to_all_v
                        ? is.origin == want.origin && is.chunk == want.chunk
                        : is.chunk % plan_.chunks_per_block == want.chunk % plan_.chunks_per_block;
  if (fits) return "";
  return fmt::format("writes {} into output[{}], whose size is that of {}", symbols_.describe(location),
                     locations_.output_chunk(location), describe(want));
}

std::vector<SymbolicMemory::WrongOutput> SymbolicMemory::compare_outputs() const {
  std::vector<WrongOutput> wrong;
  for (int rank = 0; rank < plan_.num_ranks; ++rank) {
    for (int c = 0; c < output_chunks(plan_, rank); ++c) {
      const int location = locations_.of(rank, output(c), 0);
      const Moved& want = expected_[at(location)];
      if (!symbols_.empty(location) && symbols_.content(location) == want) continue;
      wrong.push_back(
          {rank, fmt::format("output[{}] ends as {}, expected {}", c, symbols_.describe(location), describe(want))});
    }
  }
  return wrong;
}

}  // namespace lockstep::plan
