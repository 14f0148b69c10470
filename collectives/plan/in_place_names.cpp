#include "collectives/plan/in_place_names.h"

#include <algorithm>
#include <utility>

#include "core/index.h"

namespace lockstep::plan {

InPlaceNames::InPlaceNames(const Plan& plan, int rank)
    : inputs_(input_chunks(plan, rank)),
      outputs_(output_chunks(plan, rank)),
      scratch_begin_(plan.scratch_chunks),
      scratch_chunks_(plan.scratch_chunks) {
  const auto alias = collectives::in_place_alias(plan.kind, plan.num_ranks, plan.root, rank);
  const int shift = (alias.input_block - alias.output_block) * plan.chunks_per_block;
  to_output_ = inputs_ == 0 || (shift <= 0 && inputs_ - shift <= outputs_);
  (to_output_ ? input_begin_ : output_begin_) = to_output_ ? -shift : shift;
  chunks_.resize(at(to_output_ ? outputs_ : inputs_));
}

bool InPlaceNames::is_in_input(int chunk) const {
  return chunk >= input_begin_ && chunk < input_begin_ + inputs_;
}

std::vector<Step> InPlaceNames::rename(Step& step, After at_end) {
  std::vector<Step> copies;
  if (step.op == Op::reduce && is_renamed(step.dst)) move(step.dst, at_end, copies);
  if (reads_src(step.op) && is_renamed(step.src)) read(step, at_end, copies);
  if (writes_dst(step.op) && is_renamed(step.dst)) write(step);
  if (!copies.empty()) copies.front().after.insert(copies.front().after.end(), step.after.begin(), step.after.end());
  return copies;
}

void InPlaceNames::read(Step& step, After at_end, std::vector<Step>& copies) {
  const int first = first_of(step.src);
  const int count = step.src.count;
  const auto is_original = [this](int c) { return is_in_input(c) && !chunks_[at(c)].moved; };
  bool all = true;
  for (int c = first; c < first + count; ++c) all = all && is_original(c);
  if (!all) move(step.src, at_end, copies);
  const After here{at_end.lane, at_end.step + static_cast<int>(copies.size())};
  for (int c = first; c < first + count; ++c) {
    Chunk& chunk = chunks_[at(c)];
    if (all) chunk.read_from.push_back(here);
    if (!all && chunk.copied_by.lane >= 0) step.after.push_back(chunk.copied_by);
  }
  step.src = all ? from_input(first, count) : moved_to(first, count);
}

// Copies what is still in the input to its new place, after those that read it there: in place the two are the same.
void InPlaceNames::move(const Slice& slice, After at_end, std::vector<Step>& copies) {
  const int end = first_of(slice) + slice.count;
  for (int c = first_of(slice); c < end; ++c) {
    if (!is_in_input(c) || chunks_[at(c)].moved) continue;
    const After here{at_end.lane, at_end.step + static_cast<int>(copies.size())};
    Step copy{Op::copy, -1, from_input(c, 0), moved_to(c, 0), {}};
    for (; c < end && is_in_input(c) && !chunks_[at(c)].moved; ++c) {
      auto& readers = chunks_[at(c)].read_from;
      copy.after.insert(copy.after.end(), readers.begin(), readers.end());
      chunks_[at(c)] = {true, here, {}};
      ++copy.src.count;
      ++copy.dst.count;
    }
    copies.push_back(std::move(copy));
    if (!to_output_) scratch_chunks_ = scratch_begin_ + inputs_;
  }
}

// Steps that the thread blocks order after those that needed a copy come after the copy, too.
void InPlaceNames::write(Step& step) {
  const int first = first_of(step.dst);
  for (int c = first; c < first + step.dst.count; ++c) chunks_[at(c)] = {true, {}, {}};
  step.dst = moved_to(first, step.dst.count);
  if (!to_output_) scratch_chunks_ = scratch_begin_ + inputs_;
}

std::vector<Step> InPlaceNames::finish() const {
  std::vector<Step> copies;
  for (int o = 0; o < outputs_; ++o) {
    const int c = o + output_begin_;
    const bool moved = chunks_[at(c)].moved;
    if (moved ? to_output_ : !is_in_input(c)) continue;
    const Slice from = moved ? moved_to(c, 1) : from_input(c, 1);
    if (!copies.empty()) {
      Step& last = copies.back();
      if (last.dst.first + last.dst.count == o && last.src.buffer == from.buffer &&
          last.src.first + last.src.count == from.first) {
        ++last.src.count;
        ++last.dst.count;
        continue;
      }
    }
    copies.push_back({Op::copy, -1, from, output(o), {}});
  }
  return copies;
}

}  // namespace lockstep::plan
