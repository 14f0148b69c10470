#include "core/open_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <utility>

namespace lockstep::core {

OpenedLibrary::OpenedLibrary(std::string name, Failure failure, std::span<const char* const> places)
    : name_(std::move(name)), failure_(failure) {
  std::string reasons;
  for (const char* const place : places) {
    library_ = dlopen(place, RTLD_LAZY | RTLD_LOCAL);
    if (library_ != nullptr) return;
    reasons += fmt::format("{}{}", reasons.empty() ? "" : "; ", dlerror());
  }
  throw Error(failure_, fmt::format("{} cannot be opened (add its folder to LD_LIBRARY_PATH): {}", name_, reasons));
}

void* OpenedLibrary::address_of(const char* function) const {
  void* const found = dlsym(library_, function);
  if (found == nullptr) throw Error(failure_, fmt::format("{} has no {}", name_, function));
  return found;
}

}  // namespace lockstep::core
