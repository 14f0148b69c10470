// Exchanges of rows between blocks by tensor-parallel ranks: they sum their terms and, with sequence parallelism,
// gather rows of which each has a share.
#pragma once

#include "kernels/base/view.h"
#include "parallel/memory/memory.h"
#include "trainer/model/part_run.h"

namespace lockstep::trainer {

// Sum over ranks: takes this rank's term of all rows and gives the sum of its own rows. With one rank the term is the
// sum.
class RowSum {
 public:
  parallel::Tensor sum = {};

  kernels::Out begin(const StageContext& stage);         // returns the destination of the term
  kernels::InOut term() const { return term_.inout(); }  // between begin() and end()
  void end(const StageContext& stage);                   // call it after the term is written

  GptStage::Exchange exchange(const StageContext& stage);
  void exchanged(const StageContext& stage);

 private:
  parallel::Tensor term_;
};

// All rows of a tensor of which each rank has a share; if ranks have everything, no gather is needed.
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
