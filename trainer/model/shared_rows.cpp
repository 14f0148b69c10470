#include "trainer/model/shared_rows.h"

#include <utility>

namespace lockstep::trainer {
namespace {

std::int64_t all_elems(const StageContext& stage) {
  return stage.shape.rows() * stage.shape.model.hidden;
}

}  // namespace

kernels::Out RowSum::begin(const StageContext& stage) {
  term_ = stage.make(all_elems(stage));
  return term_.out();
}

void RowSum::end(const StageContext& stage) {
  if (stage.shape.tensor.ranks == 1) sum = std::move(term_);
}

GptStage::Exchange RowSum::exchange(const StageContext& stage) {
  if (!stage.shape.layout.sequence_parallel) return {term_.in(), term_.out()};
  sum = stage.make_own_rows();
  return {term_.in(), sum.out()};
}

void RowSum::exchanged(const StageContext& stage) {
  if (stage.shape.layout.sequence_parallel) {
    term_.reset();
  } else {
    sum = std::move(term_);
  }
}

GptStage::Exchange RowGather::exchange(const StageContext& stage, const parallel::Tensor& own) {
  all_ = stage.workspace.memory.make(parallel::MemoryKind::buffers, stage.shape.layout.compute, all_elems(stage));
  return {own.in(), all_.out()};
}

}  // namespace lockstep::trainer
