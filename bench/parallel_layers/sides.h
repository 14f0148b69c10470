// The two sides of a layer at which tensor ranks exchange (Shoeybi et al. 2019, arXiv:1909.08053, section 3; with
// sequence parallelism Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.2):
//
//            forward                                        backward
//   Entry    all ranks need all rows: gathered if          terms of the input's gradient are added up: all-reduce, or
//            ranks have a share of the rows each           reduce-scatter of rows
//   Exit     terms of the output are added up: likewise    all ranks need all rows of the output's gradient: gathered
//                                                          if ranks have a share each
//
// Between the two sides rows lie in the order of tiles.
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
#include "workload/parameter.h"

namespace lockstep::layer_bench {

// Where a layer is run. On one rank there is no exchanger.
struct Place {
  const Shape& shape;
  Sharing sharing;
  const parallel::Workspace& workspace;
  Exchanger* exchanger = nullptr;

  workload::TensorPlace tensor() const { return {sharing.ranks, sharing.index}; }
  Tiles tiles() const { return {shape.rows(), sharing}; }
  parallel::Tensor make(std::int64_t elems) const;  // of the dtype
  parallel::Tensor random(const workload::Parameter& whole) const;
  parallel::Tensor random_in_tiles(const workload::Parameter& whole) const;  // all rows
};

// What a pass leaves, and what it is a share of.
struct Result {
  workload::Parameter whole;  // [rows, columns]
  const parallel::Tensor* found = nullptr;
  // Elements are held to a bound of their own, not of the largest.
  bool elementwise = false;
  // Where its elements lie in the whole; if not as the parameter says.
  std::function<void(const std::function<void(std::int64_t, std::int64_t, std::int64_t)>&)> runs = {};
  bool in_tiles = false;  // rows lie in the order of tiles
};

// rows x hidden, of which ranks have all or, with sequence parallelism, a share of the rows.
workload::Parameter rows_of_all(const Place& place, std::string name);

class Entry {
 public:
  explicit Entry(const Place& place);
  bool gathers() const { return place_.sharing.sequence_parallel; }

  // The input in tiles as they are gathered; in one tile where all of it is there.
  std::vector<Tile> add_gathers(Pass& pass) const;
  kernels::In x(const Tile& tile) const;
  // Gathers the input again. The last exchange; kNothing where all of it was there all the time.
  int add_again(Pass& pass) const;
  kernels::In x_again() const { return gathers() ? again_.in() : own_.in(); }  // all rows

  kernels::Out d_terms(const Tile& tile) const;  // a term of the input's gradient
  void add_sum(Pass& pass, const Tile& tile, int after) const;

  Result result() const { return {rows_of_all(place_, "dx"), gathers() ? &d_own_ : &d_terms_}; }
  void spoil() const;  // what a pass writes

 private:
  Place place_;
  parallel::Tensor own_, gathered_, again_, d_terms_, d_own_;
};

class Exit {
 public:
  explicit Exit(const Place& place);
  bool gathers() const { return place_.sharing.sequence_parallel; }

  kernels::Out terms(const Tile& tile) const;  // a term of the output
  void add_sum(Pass& pass, const Tile& tile, int after) const;

  // The output's gradient, as Entry's input.
  std::vector<Tile> add_gathers(Pass& pass) const;
  kernels::In dy(const Tile& tile) const;
  // In place of add_gathers, for who needs the rows in their own order: gathered whole. The exchange, or kNothing.
  int add_whole_gather(Pass& pass) const;

  Result result() const { return {rows_of_all(place_, "y"), gathers() ? &own_ : &terms_}; }
  void spoil() const;

 private:
  Place place_;
  parallel::Tensor terms_, own_, d_own_, d_all_;
};

}  // namespace lockstep::layer_bench
