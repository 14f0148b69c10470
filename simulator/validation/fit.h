// Fits the one efficiency of a machine description that depends on published runs.
#pragma once

#include <span>

#include "simulator/validation/validation.h"

namespace lockstep::simulator {

// The machine with its shares of products (attention included) multiplied by a factor.
Machine scaled(Machine machine, double product_factor);

// The factor with the least sum of squared relative errors over the runs marked as fitted (Gauss-Newton); all cases
// must be on that machine. It is 1 for a description that is already fitted.
double fit_product_share(std::span<const ValidationCase> cases, const Machine& machine);

}  // namespace lockstep::simulator
