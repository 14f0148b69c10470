// Texts of this folder that are part of the program: CMakeLists.txt writes their source.
#pragma once

namespace lockstep::suite {

const char* embedded_claims_suite();

}  // namespace lockstep::suite
