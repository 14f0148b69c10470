// Vendors' libraries that are opened at run time, when something asks for them: programs then start where these are not
// installed, and need not wait for one to load that they do not use.
#pragma once

#include <span>
#include <string>

#include "core/error.h"

namespace lockstep::core {

// `name` and `failure` are for errors: "cuBLASLt", Failure::cuda.
class OpenedLibrary {
 public:
  // The first of these places that can be opened, as dlopen() has it; it stays open to the end of the process. Throws
  // Error(failure) with the reason for each if none can.
  OpenedLibrary(std::string name, Failure failure, std::span<const char* const> places);

  // decltype(f)* of the function f that the library knows as `function`; throws Error(failure) where there is none.
  template <class Function>
  Function* find(const char* function) const {
    return reinterpret_cast<Function*>(address_of(function));
  }

 private:
  void* address_of(const char* function) const;

  std::string name_;
  Failure failure_;
  void* library_ = nullptr;
};

}  // namespace lockstep::core
