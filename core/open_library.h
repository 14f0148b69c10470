// Vendors' libraries, opened at run time when first needed: programs start without them, and need not wait for a
// library to load that they do not use.
#pragma once

#include <span>
#include <string>

#include "core/error.h"

namespace lockstep::core {

// `name` and `failure` are for errors: "cuBLASLt", Failure::cuda.
class OpenedLibrary {
 public:
  // Opens the first of `places` that dlopen() can open; it stays open to the end of the process. Throws Error(failure)
  // with the reason for each if none can be opened.
  OpenedLibrary(std::string name, Failure failure, std::span<const char* const> places);

  // Returns the library's `function` as decltype(f)*; throws Error(failure) if there is none.
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
