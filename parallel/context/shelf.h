// Tensors of a rank's context-parallel attention by what they are and whose. Kernels and exchanges use it from threads
// of their own; a tensor stays where it is until it is taken.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "core/error.h"
#include "parallel/memory/memory.h"
#include "workload/context_list.h"

namespace lockstep::parallel {

class Shelf {
 public:
  struct Key {
    workload::ContextArray array;
    std::int32_t owner;
    friend auto operator<=>(const Key&, const Key&) = default;
  };

  const Tensor* find(const Key& key) const {
    const std::lock_guard lock(mutex_);
    const auto found = tensors_.find(key);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  const Tensor& at(const Key& key) const {
    const Tensor* const found = find(key);
    LOCKSTEP_CHECK(found != nullptr, "an array that the list has brought here");
    return *found;
  }
  const Tensor& put(const Key& key, Tensor tensor) {
    const std::lock_guard lock(mutex_);
    return tensors_.insert_or_assign(key, std::move(tensor)).first->second;
  }
  // Empty if it is not there.
  Tensor take(const Key& key) {
    const std::lock_guard lock(mutex_);
    auto node = tensors_.extract(key);
    return node.empty() ? Tensor() : std::move(node.mapped());
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    tensors_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::map<Key, Tensor> tensors_;
};

}  // namespace lockstep::parallel
