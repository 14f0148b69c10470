// The two sides of a layer at which tensor ranks exchange (Shoeybi et al. 2019, arXiv:1909.08053, section 3; with
// sequence parallelism Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2):
//
//            forward                                        backward
//   Entry    all ranks need all rows: gathered if          terms of the input's gradient are added up: all-reduce, or
//            ranks have a share of the rows each           reduce-scatter of rows
//   Exit     terms of the output are added up: likewise    all ranks need all rows of the output's gradient: gathered
//                                                          if ranks have a share each
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/parallel_layers/exchanger.h"
#include "bench/parallel_layers/pass.h"
#include "bench/parallel_layers/shape.h"
#include "bench/parallel_layers/tiles.h"
#include "kernels/base/view.h"
#include "parallel/layers/workspace.h"
#include "parallel/memory/memory.h"
#include "parallel/parameters/parameter.h"

namespace lockstep::layer_bench {

// Where a layer is run. On one rank there is no exchanger.
struct Place {
  const Shape& shape;
  Sharing sharing;
  const parallel::Workspace& workspace;
  Exchanger* exchanger = nullptr;

  parallel::TensorPlace tensor() const { return {sharing.ranks, sharing.index}; }
  Tiles tiles() const { return {shape.rows(), sharing}; }
  parallel::Tensor make(std::int64_t elems) const;  // of the dtype
  parallel::Tensor random(const parallel::Parameter& whole) const;
};

// What a pass leaves, and what it is a share of.
struct Result {
  parallel::Parameter whole;  // [rows, columns]
  const parallel::Tensor* found = nullptr;
  // Elements are held to a bound of their own, not of the largest.
  bool elementwise = false;
  // Where its elements lie in the whole; if not as the parameter says.
  std::function<void(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>&)> runs = {};
};

// rows x hidden, of which ranks have all or, with sequence parallelism, a share of the rows.
parallel::Parameter rows_of_all(const Place& place, std::string name);

class Entry {
 public:
  explicit Entry(const Place& place);
  // Gathers tiles, and calls product(piece, x of its rows).
  void add_forward(Pass& pass, const std::function<void(const Piece&, kernels::In)>& product) const;
  // Gathers the input again, whole. Its place in the list; kNothing where it was there all the time.
  int add_again(Pass& pass) const;
  // Calls product(piece, a term of the gradient of its rows), and adds up.
  void add_backward(Pass& pass, const std::function<void(const Piece&, kernels::Out)>& product) const;

  kernels::In x() const { return gathers() ? again_.in() : own_.in(); }  // all rows, behind add_again
  Result result() const { return {rows_of_all(place_, "dx"), gathers() ? &d_own_ : &d_terms_}; }
  void spoil() const;  // what a pass writes

 private:
  bool gathers() const { return place_.sharing.sequence_parallel; }
  Place place_;
  parallel::Tensor own_, packed_, again_, d_terms_, d_own_;
};

class Exit {
 public:
  explicit Exit(const Place& place);
  // Calls product(piece, a term of the output of its rows), and adds up.
  void add_forward(Pass& pass, const std::function<void(const Piece&, kernels::Out)>& product) const;
  // Gathers tiles of the output's gradient, and calls product(piece, gradient of its rows); in one piece where all is
  // there already.
  void add_backward(Pass& pass, const std::function<void(const Piece&, kernels::In)>& product) const;
  // Calls product for all of them again.
  void add_once_more(Pass& pass, const std::function<void(const Piece&, kernels::In)>& product) const;
  // In place of these, for who needs all rows in their order: gathers it whole. Its place in the list, or kNothing.
  int add_whole_backward(Pass& pass) const;
  kernels::In whole_dy() const { return gathers() ? d_all_.in() : d_own_.in(); }

  Result result() const { return {rows_of_all(place_, "y"), gathers() ? &own_ : &terms_}; }
  void spoil() const;

 private:
  bool gathers() const { return place_.sharing.sequence_parallel; }
  std::vector<Piece> pieces(int tile) const;
  int backward_tiles() const { return gathers() ? place_.sharing.tiles : 1; }
  void add_products(Pass& pass, int tile, int gathered,
                    const std::function<void(const Piece&, kernels::In)>& product) const;
  Place place_;
  parallel::Tensor terms_, own_, d_own_, d_all_;
};

}  // namespace lockstep::layer_bench
