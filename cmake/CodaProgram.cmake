# What it takes to compile programs for Hopper, in this project and in one that found the installed package: CUTLASS's
# headers in CODA_CUTLASS_DIR (PyPI's nvidia-cutlass has them in cutlass_library/source) and CMake's language CUDA.
if(NOT CODA_CUDA_FOUND)
  function(coda_add_program target)
    message(FATAL_ERROR "coda_add_program(${target}): expected a coda that is built with CUDA, got one for the CPU alone")
  endfunction()
  return()
endif()

# The C++ compiler links, and its own library must come first: nvcc may compile with an older one (Debian's does). Here
# for who enabled CUDA before; coda_add_program does it for who did so behind find_package.
if(CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES)
  list(FILTER CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES EXCLUDE REGEX "/gcc/")
endif()

# coda_device_options(<target> [--warn]): flags for .cu files, and a compiler launcher that fails on spills and
# serialised wgmma, or warns of them.
function(coda_device_options target)
  if(NOT EXISTS "${CODA_CUTLASS_DIR}/include/cutlass/cutlass.h")
    message(FATAL_ERROR "CODA_CUTLASS_DIR: expected the folder that holds CUTLASS's include/, got '${CODA_CUTLASS_DIR}'")
  endif()
  # Both are of the caller's folder: with add_subdirectory() a parent sees neither what coda enabled nor what it found.
  if(NOT CMAKE_CUDA_COMPILER)
    message(FATAL_ERROR "${target}: expected CMake's language CUDA: project(<name> LANGUAGES CXX CUDA)")
  endif()
  find_package(CUDAToolkit REQUIRED)
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
  set(gate ptxas_gate.sh ${ARGN})
  if(NOT CMAKE_CUDA_COMPILER_VERSION MATCHES "^13\\.0\\.")
    set(gate ptxas_gate.sh --warn)  # an older or newer ptxas may spill a few registers, which is slower, not wrong
  endif()
  set_target_properties(
    ${target} PROPERTIES CUDA_RUNTIME_LIBRARY Static CUDA_ARCHITECTURES OFF POSITION_INDEPENDENT_CODE ON
                         CUDA_COMPILER_LAUNCHER "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/${gate}$<$<BOOL:${CODA_CCACHE}>:;${CODA_CCACHE}>")
endfunction()

# coda_add_program(<target> <file.cu>...): a library of functions that run programs of one's own on Hopper, through
# coda::sm90::gemm of "coda/backend/sm90/gemm.cuh". See examples/hopper.
function(coda_add_program target)
  add_library(${target} ${ARGN})
  coda_device_options(${target} --warn)
  target_link_libraries(${target} PUBLIC coda::coda)
  set(dirs ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES})
  list(FILTER dirs EXCLUDE REGEX "/gcc/")
  set(CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES ${dirs} PARENT_SCOPE)
endfunction()
