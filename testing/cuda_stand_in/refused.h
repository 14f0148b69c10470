// A call that the stand-in refuses, as a driver would: CUDA's code, and what was asked and is allowed.
#pragma once

#include <stdexcept>
#include <string>

namespace lockstep::cuda_stand_in {

class Refused : public std::runtime_error {
 public:
  Refused(int code, const std::string& why) : std::runtime_error(why), code_(code) {}
  int code() const { return code_; }  // cudaError_t

 private:
  int code_;
};

}  // namespace lockstep::cuda_stand_in
