// Texts of this folder that are embedded in the program by CMakeLists.txt.
#pragma once

namespace lockstep::suite {

const char* embedded_claims_suite();

}  // namespace lockstep::suite
