// What a stage does, operation by operation, on one rank for one microbatch: the one list from which recipes are
// priced, activations are counted, and both are tested against published formulas.
//
// Forward goes through the operations in order, backward in reverse. An operation is either kernels or a collective
// whose backward is another one (tensor parallel: nothing and all-reduce; sequence parallel: all-gather and
// reduce-scatter).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "schedules/step/step.h"
#include "simulator/layout/layout.h"
#include "simulator/model/model.h"

namespace lockstep::simulator {

struct Kernel {
  enum class Kind : std::uint8_t { product, attention, pass };  // whose share of a peak it reaches
  Kind kind = Kind::pass;
  double flops = 0;
  double bytes = 0;  // to and from memory
  double count = 1;  // so many of these, one after the other
};

struct Exchange {
  schedules::Comm comm = schedules::Comm::none;  // none: there is no collective
  schedules::GroupKind group = schedules::GroupKind::tensor;
  double bytes = 0;  // payload, as schedules::Task::amount
};

struct LayerOp {
  std::string_view name;
  std::vector<Kernel> forward;
  std::vector<Kernel> input_gradient;
  std::vector<Kernel> weight_gradient;
  Exchange forward_exchange;
  Exchange backward_exchange;
  // Before the backward of an operation, beside it: inputs that were kept in parts are gathered again.
  Exchange regather;
  bool beside = false;    // the forward's collective runs beside the next operation
  double kept_bytes = 0;  // from the forward to the input gradient
  double later_bytes =
      0;              // from the input gradient to the weight gradient: a product's input and gradient of its output
  bool core = false;  // of attention: run again by selective recomputation instead of kept
};

std::vector<LayerOp> layer_ops(const Model& model, const Layout& layout);
std::vector<LayerOp> embedding_ops(const Model& model, const Layout& layout);
std::vector<LayerOp> head_ops(const Model& model, const Layout& layout);

// Tokens of a microbatch on one rank: all of them, or this context rank's part.
double tokens_of(const Model& model, const Layout& layout);
// Bytes kept of one microbatch, of a layer's input alone or of everything.
double input_bytes(const Model& model, const Layout& layout);
double kept_bytes(const std::vector<LayerOp>& ops);

}  // namespace lockstep::simulator
