// The one efficiency of a machine description that published runs are fitted by.
#pragma once

#include <span>

#include "simulator/validation/validation.h"

namespace lockstep::simulator {

// With the shares of products (attention's among them) multiplied by a factor.
Machine scaled(Machine machine, double product_factor);

// The factor that makes the sum of squared relative errors of the runs marked as fitted least (Gauss-Newton); all cases
// are on that machine. It is 1 for a description that has been fitted.
double fit_product_share(std::span<const ValidationCase> cases, const Machine& machine);

}  // namespace lockstep::simulator
