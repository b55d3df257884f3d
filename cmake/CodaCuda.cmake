# Decides whether the Hopper backend is built: CODA_CUDA_FOUND is the answer, one status line tells it.

set(CODA_CUDA AUTO CACHE STRING "Build the Hopper backend: AUTO (when nvcc and CUTLASS are found), ON or OFF")
set_property(CACHE CODA_CUDA PROPERTY STRINGS AUTO ON OFF)
option(CODA_SM90_REDUCED "Compile one configuration of each Hopper program only" OFF)
set(CODA_CUTLASS_DIR "${PROJECT_SOURCE_DIR}/.deps/cutlass/cutlass_library/source"
    CACHE PATH "Folder that holds CUTLASS's include/ and tools/util/include/")

set(CODA_CUDA_FOUND OFF)
set(_coda_no_cuda "")
if(NOT CODA_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "CODA_CUDA: expected AUTO, ON or OFF, got '${CODA_CUDA}'")
elseif(CODA_CUDA STREQUAL "OFF")
  set(_coda_no_cuda "CODA_CUDA is OFF")
else()
  if(NOT CMAKE_CUDA_COMPILER)
    find_program(CODA_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME /usr/local/cuda PATH_SUFFIXES bin)
    mark_as_advanced(CODA_NVCC)
  endif()
  if(NOT CMAKE_CUDA_COMPILER AND NOT CODA_NVCC)
    set(_coda_no_cuda "no nvcc on PATH, in CUDA_PATH or in /usr/local/cuda")
  elseif(NOT EXISTS "${CODA_CUTLASS_DIR}/include/cutlass/cutlass.h")
    set(_coda_no_cuda "no CUTLASS headers in CODA_CUTLASS_DIR=${CODA_CUTLASS_DIR} (scripts/setup.sh cuda fetches them)")
  endif()
endif()

if(_coda_no_cuda)
  if(CODA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CODA_CUDA is ON, but: ${_coda_no_cuda}")
  endif()
  message(STATUS "Hopper backend: skipped, ${_coda_no_cuda}")
else()
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER "${CODA_NVCC}")
  endif()
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # the flags below name the target; CMake's own list has no 90a
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  set(CODA_CUDA_FOUND ON)
  message(STATUS "Hopper backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, CUTLASS in ${CODA_CUTLASS_DIR}")
endif()
unset(_coda_no_cuda)

# coda_device_options(<target>): flags for .cu files, and a compiler launcher that fails on spills and serialised wgmma.
function(coda_device_options target)
  target_include_directories(${target} SYSTEM PRIVATE "${CODA_CUTLASS_DIR}/include"
                                                      "${CODA_CUTLASS_DIR}/tools/util/include")
  # NDEBUG in every build type: an assert in the main loop is a call, which makes ptxas serialise wgmma.
  target_compile_options(
    ${target}
    PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:-std=c++20> # CMake 3.25 does not know that nvcc has C++20
            $<$<COMPILE_LANGUAGE:CUDA>:-O3>
            $<$<COMPILE_LANGUAGE:CUDA>:-DNDEBUG>
            $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>
            $<$<COMPILE_LANGUAGE:CUDA>:-gencode=arch=compute_90a,code=sm_90a>
            $<$<COMPILE_LANGUAGE:CUDA>:-Xptxas=-v>
            # 20012: host/device markers on a defaulted function; 177: CUTLASS declares what it does not use;
            # 554: a conversion that `requires` rules out for that type.
            $<$<COMPILE_LANGUAGE:CUDA>:-diag-suppress=20012,177,554>)
  target_compile_definitions(${target} PRIVATE $<$<BOOL:${CODA_SM90_REDUCED}>:CODA_SM90_REDUCED>)
  target_link_libraries(${target} PRIVATE CUDA::cudart_static)
  set_target_properties(
    ${target} PROPERTIES CUDA_RUNTIME_LIBRARY Static POSITION_INDEPENDENT_CODE ON
                         CUDA_COMPILER_LAUNCHER "${PROJECT_SOURCE_DIR}/cmake/ptxas_gate.sh$<$<BOOL:${CODA_CCACHE}>:;${CODA_CCACHE}>")
endfunction()
