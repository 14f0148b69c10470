// Memory of several GPUs that NVLink's switch also reaches at one address: multicast objects (CUDA Programming Guide,
// Virtual Memory Management; CUDA Driver API, Multicast Object Management). For threads of one process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/cuda_call.h"

namespace lockstep::core {

// Whether the GPU hangs on a switch that copies and reduces.
bool cuda_has_multicast(int device);

// A team of GPUs, one replica of so many bytes each. Made by one of its threads; goes with the last who holds it.
class MulticastTeam {
 public:
  // At least `size_bytes`, rounded up to what the devices can bind.
  MulticastTeam(CudaPlace place, std::vector<int> devices, std::size_t size_bytes);
  ~MulticastTeam();
  MulticastTeam(const MulticastTeam&) = delete;
  MulticastTeam& operator=(const MulticastTeam&) = delete;

  const std::vector<int>& devices() const { return devices_; }
  std::size_t size_bytes() const { return size_bytes_; }
  std::uint64_t handle() const { return handle_; }

 private:
  CudaPlace place_;
  std::vector<int> devices_;
  std::size_t size_bytes_ = 0;
  std::uint64_t handle_ = 0;
};

// A device's memory in a team. All devices of a team join before any of them binds: the driver waits for all.
class MulticastReplica {
 public:
  MulticastReplica(CudaPlace place, std::shared_ptr<const MulticastTeam> team);  // joins
  ~MulticastReplica();
  MulticastReplica(const MulticastReplica&) = delete;
  MulticastReplica& operator=(const MulticastReplica&) = delete;

  void bind();
  // Once bound: by the first all devices of the team reach this memory, by the second this device reaches all replicas,
  // which it may once all are bound, and by multimem instructions only.
  std::byte* memory() const { return memory_.begin; }
  std::byte* multicast() const { return multicast_.begin; }

 private:
  struct Mapping {
    std::byte* begin = nullptr;
    bool mapped = false;
  };
  void map(Mapping& mapping, std::uint64_t handle, const std::vector<int>& devices);
  void unmap(Mapping& mapping);

  CudaPlace place_;
  std::shared_ptr<const MulticastTeam> team_;
  int driver_device_ = 0;
  std::uint64_t handle_ = 0;
  bool bound_ = false;
  Mapping memory_;
  Mapping multicast_;
};

}  // namespace lockstep::core
