// The numbers of pieces (schedules::Piece::what) of GPT-2's recipe. Exchanges are collectives, all else kernels.
#pragma once

#include <cstdint>

namespace lockstep::trainer {

enum class What : std::uint8_t {
  // ---- embedding
  embed = 1,
  sum_embedding,              // exchange: terms of tensor ranks
  gather_embedding_gradient,  // exchange, sequence parallel: all rows of the output's gradient
  embedding_weight_gradient,

  // ---- layer, forward
  attention_in,      // norm 1
  gather_attention,  // exchange, sequence parallel: all rows of the norm's output
  qkv,
  core,
  project,
  sum_attention,  // exchange: terms of tensor ranks
  mlp_in,         // residual and norm 2
  gather_mlp,     // exchange, sequence parallel
  mlp_up,         // first product, GELU
  mlp_down,       // second product
  sum_mlp,        // exchange
  mlp_out,        // residual

  // ---- layer, backward
  gather_mlp_gradient,  // exchange, sequence parallel: all rows of the output's gradient
  regather_mlp,         // exchange, sequence parallel: gather_mlp again, for the weights' gradients
  mlp_input_gradient,
  sum_mlp_gradient,  // exchange: terms of the gradient of norm 2's output
  mlp_weight_gradient,
  mlp_in_backward,  // norm 2 and the residual around the MLP
  gather_attention_gradient,
  regather_attention,
  attention_input_gradient,
  sum_attention_gradient,
  attention_weight_gradient,
  attention_in_backward,

  // ---- head, forward
  head_in,       // final norm
  gather_head,   // exchange, sequence parallel
  logits,        // of this rank's words; with several ranks their maximum and sum, too
  gather_stats,  // exchange: three floats a token
  loss,          // logits become their gradient

  // ---- head, backward
  regather_head,
  head_input_gradient,
  sum_head_gradient,
  head_weight_gradient,
  head_in_backward,
};

}  // namespace lockstep::trainer
