// Reference: plain loops, for tests.
#pragma once

#include <cmath>
#include <cstddef>

#include "kernels/base/reference_data.h"
#include "kernels/swiglu/swiglu.h"

namespace lockstep::kernels {

// Calls visit(gate, up, position in a [rows, columns] array) with positions in x.
template <class Args, class Visit>
void for_each_gate(const Args& args, Visit&& visit) {
  const auto columns = static_cast<std::size_t>(args.columns);
  for (std::size_t r = 0; r < static_cast<std::size_t>(args.rows); ++r) {
    for (std::size_t c = 0; c < columns; ++c) visit(2 * r * columns + c, (2 * r + 1) * columns + c, r * columns + c);
  }
}

template <class S>
void reference(const SwigluForward& args, ReferenceData<S>& data) {
  using std::exp;
  const auto x = data["x"];
  const auto y = data["y"];
  for_each_gate(args, [&](std::size_t gate, std::size_t up, std::size_t at) {
    y[at] = x[gate] / (S(1) + exp(-x[gate])) * x[up];
  });
}

template <class S>
void reference(const SwigluBackward& args, ReferenceData<S>& data) {
  using std::exp;
  const auto x = data["x"];
  const auto dy = data["dy"];
  const auto dx = data["dx"];
  for_each_gate(args, [&](std::size_t gate, std::size_t up, std::size_t at) {
    const S g = x[gate];
    const S s = S(1) / (S(1) + exp(-g));
    dx[gate] = dy[at] * x[up] * (s * (S(1) + g * (S(1) - s)));
    dx[up] = dy[at] * (g * s);
  });
}

}  // namespace lockstep::kernels
