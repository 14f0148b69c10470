// The two efficiencies of a machine description that published runs are fitted by.
#pragma once

#include <span>

#include "simulator/validation/validation.h"

namespace lockstep::simulator {

// What the shares of products (attention's among them) and of passes over memory are multiplied by.
struct ShareFactors {
  double product = 1;
  double memory = 1;
};
Machine scaled(Machine machine, const ShareFactors& factors);

// The factors that make the sum of squared relative errors of the cases marked as fitted least (Gauss-Newton), but for
// those whose machine has factors of their own. They are
// 1 for a description that has been fitted.
ShareFactors fit_shares(std::span<const ValidationCase> cases, const Machine& machine);

}  // namespace lockstep::simulator
