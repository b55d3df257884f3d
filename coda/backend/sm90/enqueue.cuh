// How kernels are launched: close behind each other (programmatic dependent launch). While the last blocks of one are
// at work, those of the stream's next are set up where there is room; then they wait until all ahead of them is done
// and can be read. That saves some half a microsecond between two kernels.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <type_traits>

namespace coda::sm90::detail {

/// Every thread of every kernel calls it before it touches memory that other kernels write or read. A kernel has to
/// wait itself even if it needs nothing of the one ahead: the next waits for this one alone, and means all before it.
__device__ __forceinline__ void wait_for_turn() {
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

struct Blocks {
  dim3 count;
  int threads;
  dim3 of_cluster = {1, 1, 1};
  std::size_t shared_bytes = 0;
};

/// Enqueues a kernel that calls wait_for_turn. Not <<<>>>, after which one has to ask for an error that may be somebody
/// else's.
template <class... Parameters>
cudaError_t enqueue(cudaStream_t stream, const Blocks& blocks, void (*kernel)(Parameters...),
                    const std::type_identity_t<Parameters>&... arguments) {
  cudaLaunchAttribute attributes[2]{};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim = {blocks.of_cluster.x, blocks.of_cluster.y, blocks.of_cluster.z};
  const bool clusters = blocks.of_cluster.x * blocks.of_cluster.y * blocks.of_cluster.z > 1;
  cudaLaunchConfig_t config{};
  config.gridDim = blocks.count;
  config.blockDim = dim3(static_cast<unsigned>(blocks.threads));
  config.dynamicSmemBytes = blocks.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = clusters ? 2 : 1;
  void* addresses[] = {const_cast<Parameters*>(&arguments)...};
  return cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(kernel), addresses);
}

}  // namespace coda::sm90::detail
