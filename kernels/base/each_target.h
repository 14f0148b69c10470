// Runs tests on all instruction sets that this machine supports, not only on its best.
#pragma once

#include <functional>
#include <string>

namespace lockstep::kernels {

// Calls check(name) once for each target that kernels are compiled for and that can run here, with Highway's choice set
// to it; then lets Highway choose again. Must not run while other threads run kernels.
void on_each_target(const std::function<void(const std::string& name)>& check);

}  // namespace lockstep::kernels
