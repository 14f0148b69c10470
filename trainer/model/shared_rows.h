// Exchanges of rows by tensor ranks between blocks: they sum their terms, and, sequence parallel, gather the rows of
// which each has a share.
#pragma once

#include "kernels/base/view.h"
#include "parallel/memory/memory.h"
#include "trainer/model/part_run.h"

namespace lockstep::trainer {

// A sum over ranks: this rank's term of all rows, then the sum of the rows that it has. One rank's term is the sum.
class RowSum {
 public:
  parallel::Tensor sum = {};

  kernels::Out begin(const StageContext& stage);         // where the term is to be written
  kernels::InOut term() const { return term_.inout(); }  // as far as it was written, between the two
  void end(const StageContext& stage);                   // it was written

  GptStage::Exchange exchange(const StageContext& stage);
  void exchanged(const StageContext& stage);

 private:
  parallel::Tensor term_;
};

// All rows of something, where ranks have a share of them each; otherwise what the rank has is all.
class RowGather {
 public:
  const parallel::Tensor& of(const parallel::Tensor& own) const { return all_.given() ? all_ : own; }
  bool given() const { return all_.given(); }
  void reset() { all_.reset(); }

  GptStage::Exchange exchange(const StageContext& stage, const parallel::Tensor& own);

 private:
  parallel::Tensor all_;
};

}  // namespace lockstep::trainer
