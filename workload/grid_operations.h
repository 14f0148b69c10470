// The operations of a model whose tensor-parallel ranks form a grid (Layout::grid, workload/grid_product.h): each
// product of a layer becomes that of its blocks, with the exchanges before and after. Between the products a rank has
// whole sequences and a share of the columns, which is the work of a narrower model on one rank.
//
//   norm        row statistics are summed over the ranks that have the other columns (Xu et al. 2021, arXiv:2104.05343,
//               section 3.2.2)
//   attention   of whole heads
//   embedding   words over the ranks of a column, each word's columns over those of a row: rows are summed over the
//               column, as vocabulary-parallel ranks sum theirs
//   loss        three floats per token are exchanged among the ranks that have the other words
#pragma once

#include <string>
#include <vector>

#include "workload/layout.h"
#include "workload/model.h"
#include "workload/operations.h"

namespace lockstep::workload {

std::vector<Operation> grid_layer_operations(const Model& model, const Layout& layout);
std::vector<Operation> grid_embedding_operations(const Model& model, const Layout& layout);
std::vector<Operation> grid_head_operations(const Model& model, const Layout& layout);

// Returns why the layout's grid does not fit, with valid values; empty if it does.
std::string grid_conflict(const Model& model, const Layout& layout);

}  // namespace lockstep::workload
