// The stand-in for CUDA's runtime, seen from an executor of kernels (an interpreter of PTX): what is launched, and what
// the executor must answer. The stand-in takes the place of cudart in a test program's link, so that the shipped launch
// path runs unmodified; it owns memory, streams and events, refuses what a driver refuses, and hands each kernel to the
// executor once its stream lets it begin. Without an executor kernels compute nothing (a dry run).
//
// Threads: facts_of() is called by any thread that launches, one at a time. All other calls come from one thread, which
// is "the GPU".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::cuda_stand_in {

struct Extent {
  unsigned x = 1;
  unsigned y = 1;
  unsigned z = 1;

  std::uint64_t count() const { return std::uint64_t{x} * y * z; }
};

// A parameter's place in the block of parameters that a kernel reads by ld.param, in bytes.
struct Parameter {
  std::size_t offset_bytes;
  std::size_t size_bytes;
};

// Facts of an entry that the compiler knows.
struct KernelFacts {
  std::vector<Parameter> parameters;
  std::size_t static_shared_bytes = 0;
  std::size_t local_bytes = 0;  // per thread
  int registers = 32;           // per thread, as ptxas assigned them; 0 if unknown: no launch is refused for them
  int most_threads = 1024;      // per block (.maxntid)
};

// A kernel that was launched. `stream` is unique among all devices and threads of the process.
struct Launch {
  std::uint64_t number = 0;  // in the order of launches, from 1
  std::string kernel;        // mangled name of the entry
  Extent grid;
  Extent block;
  Extent cluster;
  std::size_t dynamic_shared_bytes = 0;
  bool cooperative = false;
  std::vector<std::byte> parameters;  // laid out as KernelFacts::parameters says
  std::uint64_t stream = 0;
  int device = 0;
  // Not 0 for a programmatic dependent launch: it begins while the kernel of this number still runs, and its
  // griddepcontrol.wait must wait until that one has ended.
  std::uint64_t after = 0;
};

class Executor {
 public:
  virtual ~Executor() = default;

  // nullopt if there is no such entry: the launch then fails with cudaErrorInvalidDeviceFunction.
  virtual std::optional<KernelFacts> facts_of(const std::string& kernel) = 0;

  // Everything that its stream has before this launch is done (but for `after`). From now on it runs alongside all
  // others that have begun: kernels of several streams may wait for each other, and for stores of the host.
  virtual void begin(const Launch& launch) = 0;

  // Runs for a while and returns the numbers of the kernels that ended; empty if none has. Must return within some
  // milliseconds, so that work which the host has queued meanwhile can begin. Called only while a kernel runs. Throws
  // std::exception for a fault of a kernel (its text should name kernel and line): every call of the program then fails
  // with cudaErrorLaunchFailure, as after a fault on a device.
  virtual std::vector<std::uint64_t> run() = 0;

  // Memory has come, gone, or been written by the host or a copy; for checks of bounds and of reads before any write.
  // Addresses of device memory are addresses of this process.
  virtual void on_allocated(std::uintptr_t /*begin*/, std::size_t /*size_bytes*/) {}
  virtual void on_freed(std::uintptr_t /*begin*/, std::size_t /*size_bytes*/) {}
  virtual void on_written(std::uintptr_t /*begin*/, std::size_t /*size_bytes*/) {}
};

// The GPU that programs are told of, and held to, from now on: launchers decide by it. By default all of an H100; a
// part of one has fewer multiprocessors (MIG), older GPUs have no clusters.
struct DescribedGpu {
  int multiprocessors = 132;
  bool has_clusters = true;
};
void describe(const DescribedGpu& gpu);

// Installs an executor, or none (nullptr), once all queued work is done; it is called no more after another one is
// installed.
void install(Executor* executor);

// Memory that kernels may use: of cudaMalloc, cudaMallocHost, or another process (cudaIpcOpenMemHandle).
enum class MemoryKind { device, pinned, opened };
struct Memory {
  std::uintptr_t begin;
  std::size_t size_bytes;
  MemoryKind kind;
  bool freed = false;
};
// The allocation, live or freed, that contains `address`; addresses are not used again. nullopt if there was none.
std::optional<Memory> memory_at(std::uintptr_t address);

// Why the stand-in refused the last call that this thread made and that failed: what was asked, and what is allowed.
std::string last_refusal();

// All launches since the process began or forget_launches(), in order; with `keep` off (the default) none are kept.
void keep_launches(bool keep);
std::vector<Launch> kept_launches();
void forget_launches();

}  // namespace lockstep::cuda_stand_in
