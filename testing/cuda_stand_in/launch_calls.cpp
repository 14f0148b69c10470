// Functions of CUDA's runtime: kernels, as nvcc's host code registers them, and their launches.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <stack>
#include <string>
#include <string_view>
#include <utility>

#include "testing/cuda_stand_in/call.h"
#include "testing/cuda_stand_in/gpu.h"
#include "testing/cuda_stand_in/limits.h"
#include "testing/cuda_stand_in/refused.h"
#include "testing/cuda_stand_in/runtime.h"
#include "testing/cuda_stand_in/tensor_map_encoding.h"

using namespace lockstep::cuda_stand_in;  // NOLINT(google-build-using-namespace): these functions are CUDA's

namespace {

template <class Body>
cudaError_t guarded(Body body) {
  return lockstep::cuda_stand_in::guarded<cudaError_t>(body);
}

Extent extent_of(dim3 given) {
  return {.x = given.x, .y = given.y, .z = given.z};
}

// A launch's attributes.
struct Wishes {
  Extent cluster = {};
  bool early = false;
  bool cooperative = false;
};

Wishes wishes_of(std::span<const cudaLaunchAttribute> attributes) {
  Wishes wishes;
  for (const cudaLaunchAttribute& attribute : attributes) {
    switch (attribute.id) {
      case cudaLaunchAttributeClusterDimension:
        wishes.cluster = {attribute.val.clusterDim.x, attribute.val.clusterDim.y, attribute.val.clusterDim.z};
        break;
      case cudaLaunchAttributeProgrammaticStreamSerialization:
        wishes.early = attribute.val.programmaticStreamSerializationAllowed != 0;
        break;
      case cudaLaunchAttributeCooperative:
        wishes.cooperative = attribute.val.cooperative != 0;
        break;
      case cudaLaunchAttributeIgnore:
      case cudaLaunchAttributePriority:
        break;
      default:
        throw Refused(cudaErrorInvalidValue, "the stand-in does not know this attribute of a launch");
    }
  }
  return wishes;
}

void queue(Runtime& runtime, Kernel& kernel, const cudaLaunchConfig_t& config, void** arguments) {
  const Wishes wishes = wishes_of({config.attrs, config.numAttrs});
  const KernelFacts& facts = runtime.kernels.facts_of(kernel, runtime.executor());
  check_launch(facts,
               {.grid = extent_of(config.gridDim),
                .block = extent_of(config.blockDim),
                .cluster = wishes.cluster,
                .dynamic_shared_bytes = config.dynamicSmemBytes,
                .opted_in_bytes = kernel.opted_in_bytes,
                .cooperative = wishes.cooperative},
               runtime.described);
  Stream* const stream = runtime.streams.find(config.stream, this_thread().device);
  if (stream == nullptr) throw Refused(cudaErrorInvalidResourceHandle, "no such stream");
  Launch launch{.kernel = kernel.name,
                .grid = extent_of(config.gridDim),
                .block = extent_of(config.blockDim),
                .cluster = wishes.cluster,
                .dynamic_shared_bytes = config.dynamicSmemBytes,
                .cooperative = wishes.cooperative,
                .parameters = Kernels::laid_out(facts, arguments),
                .stream = stream->id,
                .device = stream->device};
  runtime.streams.add(*stream, KernelWork{.launch = std::move(launch), .early = wishes.early});
  runtime.advance();
}

struct Configuration {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes;
  void* stream;
};
// Between <<<...>>> and the kernel's host function.
std::stack<Configuration>& pushed() {
  thread_local std::stack<Configuration> configurations;
  return configurations;
}

}  // namespace

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    Kernel& kernel = runtime.kernels.find(function);
    try {
      queue(runtime, kernel, *config, arguments);
    } catch (const Refused& refused) {
      runtime.count_refusal(kernel.name, refused.what());
      throw Refused(refused.code(), kernel.name + ": " + refused.what());
    }
  });
}

cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                             cudaStream_t stream) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  return cudaLaunchKernelExC(&config, function, arguments);
}

cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    Kernel& kernel = runtime.kernels.find(function);
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) {
      throw Refused(cudaErrorInvalidValue, "the stand-in does not know this attribute of a kernel");
    }
    const std::size_t most = most_dynamic_shared_bytes(runtime.kernels.facts_of(kernel, runtime.executor()));
    if (value < 0 || static_cast<std::size_t>(value) > most) {
      const std::string why = std::to_string(value) + " bytes of dynamic shared memory; at most " +
                              std::to_string(most) + " can be opted in to";
      runtime.count_refusal(kernel.name, why);
      throw Refused(cudaErrorInvalidValue, kernel.name + ": " + why);
    }
    kernel.opted_in_bytes = static_cast<std::size_t>(value);
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* function) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    Kernel& kernel = runtime.kernels.find(function);
    const KernelFacts& facts = runtime.kernels.facts_of(kernel, runtime.executor());
    *attributes = {};
    attributes->sharedSizeBytes = facts.static_shared_bytes;
    attributes->localSizeBytes = facts.local_bytes;
    attributes->numRegs = facts.registers;
    attributes->maxThreadsPerBlock = facts.most_threads;
    attributes->maxDynamicSharedSizeBytes =
        static_cast<int>(std::max(kernel.opted_in_bytes, usual_dynamic_shared_bytes(facts)));
    attributes->binaryVersion = attributes->ptxVersion = 10 * gpu::kComputeMajor + gpu::kComputeMinor;
  });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned /*version*/,
                                             unsigned long long /*flags*/, cudaDriverEntryPointQueryResult* found) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    const std::string_view wanted = symbol;
    *function = nullptr;
    if (wanted == "cuTensorMapEncodeTiled") *function = reinterpret_cast<void*>(&encode_tiled);
    // Core's question whether kernels run at all (core/device_cuda.cpp).
    if (wanted == "lockstep_computes_nothing" && runtime.executor() == nullptr) *function = &runtime;
    *found = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  });
}

// Called by the code that nvcc adds to every source with kernels.
extern "C" {

void** __cudaRegisterFatBinary(void* binary) {
  return static_cast<void**>(binary);
}
void __cudaRegisterFatBinaryEnd(void** /*handle*/) {}
void __cudaUnregisterFatBinary(void** /*handle*/) {}

void __cudaRegisterFunction(void** /*handle*/, const char* function, char* /*device_function*/, const char* name,
                            int /*thread_limit*/, uint3* /*tid*/, uint3* /*bid*/, dim3* /*block*/, dim3* /*grid*/,
                            int* /*warp*/) {
  Runtime& runtime = Runtime::get();
  const auto held = runtime.lock();
  runtime.kernels.add(function, name);
}

unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared_bytes, void* stream) {
  pushed().push({grid, block, shared_bytes, stream});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared_bytes, void* stream) {
  if (pushed().empty()) return cudaErrorInvalidConfiguration;
  const Configuration top = pushed().top();
  pushed().pop();
  *grid = top.grid;
  *block = top.block;
  *shared_bytes = top.shared_bytes;
  *static_cast<void**>(stream) = top.stream;
  return cudaSuccess;
}

cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  return guarded([&](Runtime& runtime, auto& /*lock*/) {
    *kernel = reinterpret_cast<cudaKernel_t>(&runtime.kernels.find(function));
  });
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments, std::size_t shared_bytes,
                               cudaStream_t stream) {
  return cudaLaunchKernel(kernel, grid, block, arguments, shared_bytes, stream);
}

}  // extern "C"
