#include "parallel/layers/vocabulary.h"

#include <algorithm>

#include "kernels/cross_entropy/cross_entropy.h"
#include "kernels/embedding/embedding.h"

namespace lockstep::parallel {

Words words_of(std::int64_t vocabulary, std::int64_t rows, std::int64_t index) {
  const std::int64_t first = rows * index;
  return {.rows = rows, .valid = std::clamp<std::int64_t>(vocabulary - first, 0, rows), .first = first};
}

void EmbeddingLayer::forward(const Workspace& workspace, kernels::In ids, kernels::In table, kernels::In positions,
                             kernels::Out y) const {
  kernels::run(kernels::EmbeddingForward{.tokens = tokens,
                                         .length = positions.given() ? length : 0,
                                         .rows = words.rows,
                                         .columns = hidden,
                                         .first_id = words.first,
                                         .ids = ids,
                                         .table = table,
                                         .positions = positions,
                                         .y = y},
               workspace.where);
}

void EmbeddingLayer::backward(const Workspace& workspace, kernels::In ids, kernels::In dy, kernels::InOut d_table,
                              kernels::InOut d_positions) const {
  kernels::run(kernels::EmbeddingBackward{.tokens = tokens,
                                          .length = length,
                                          .rows = words.rows,
                                          .columns = hidden,
                                          .first_id = words.first,
                                          .ids = ids,
                                          .dy = dy,
                                          .dtable = d_table,
                                          .dpositions = d_positions},
               workspace.where);
}

void HeadLayer::logits(const Workspace& workspace, kernels::In table, kernels::In x, kernels::Out y) const {
  of_table().forward(workspace, {.weight = table}, x, y);
}

void HeadLayer::stats(const Workspace& workspace, kernels::In targets, kernels::In logits, kernels::Out of_rank) const {
  kernels::run(kernels::CrossEntropyStats{.rows = rows,
                                          .columns = words.rows,
                                          .valid_columns = words.valid,
                                          .first_id = words.first,
                                          .targets = targets,
                                          .logits = logits,
                                          .stats = of_rank},
               workspace.where);
}

void HeadLayer::loss(const Workspace& workspace, kernels::In targets, kernels::In all_stats, float scale,
                     kernels::InOut logits, kernels::Out losses) const {
  if (shards == 1) {
    return kernels::run(kernels::CrossEntropy{.rows = rows,
                                              .columns = words.rows,
                                              .valid_columns = words.valid,
                                              .scale = scale,
                                              .targets = targets,
                                              .logits = logits,
                                              .losses = losses},
                        workspace.where);
  }
  kernels::run(kernels::CrossEntropyFinish{.rows = rows,
                                           .columns = words.rows,
                                           .valid_columns = words.valid,
                                           .first_id = words.first,
                                           .shards = shards,
                                           .scale = scale,
                                           .targets = targets,
                                           .stats = all_stats,
                                           .logits = logits,
                                           .losses = losses},
               workspace.where);
}

void HeadLayer::input_gradient(const Workspace& workspace, kernels::In table, kernels::In d_logits,
                               kernels::Out dx) const {
  of_table().input_gradient(workspace, table, d_logits, dx);
}

void HeadLayer::weight_gradient(const Workspace& workspace, kernels::In x, kernels::In d_logits,
                                kernels::InOut d_table) const {
  of_table().weight_gradient(workspace, x, d_logits, {.weight = d_table});
}

}  // namespace lockstep::parallel
