# Decides whether the Hopper backend is built: CODA_CUDA_FOUND is the answer, one status line tells it.

set(CODA_CUDA AUTO CACHE STRING "Build the Hopper backend: AUTO (when nvcc and CUTLASS are found), ON or OFF")
set_property(CACHE CODA_CUDA PROPERTY STRINGS AUTO ON OFF)
option(CODA_SM90_REDUCED "Compile one configuration of each Hopper program only" OFF)
set(CODA_CUTLASS_DIR "${PROJECT_SOURCE_DIR}/.deps/cutlass/cutlass_library/source"
    CACHE PATH "Folder that holds CUTLASS's include/ and tools/util/include/")

set(_coda_oldest_nvcc 12.4)

set(CODA_CUDA_FOUND OFF CACHE INTERNAL "Whether the Hopper backend is built")
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

if(NOT _coda_no_cuda)
  set(CMAKE_CUDA_ARCHITECTURES OFF)  # the flags below name the target; CMake's own list has no 90a
  if(NOT CMAKE_CUDA_COMPILER)
    # An nvcc that the C++ compiler is too new for, or half installed, is no reason to have no CPU backend.
    set(ENV{CUDACXX} "${CODA_NVCC}")
    include(CheckLanguage)
    check_language(CUDA)
  endif()
  if(CMAKE_CUDA_COMPILER)
    enable_language(CUDA)
    # The C++ compiler links, and its own library must come first: nvcc may compile with an older one (Debian's does).
    list(FILTER CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES EXCLUDE REGEX "/gcc/")
    if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS _coda_oldest_nvcc)
      set(_coda_no_cuda "expected nvcc ${_coda_oldest_nvcc} or newer, got ${CMAKE_CUDA_COMPILER_VERSION}")
    endif()
  else()
    unset(CMAKE_CUDA_COMPILER CACHE)  # so that the next run looks again
    set(_coda_no_cuda "${CODA_NVCC} compiles nothing with this C++ compiler (CUDAHOSTCXX names another)")
  endif()
endif()

if(_coda_no_cuda)
  if(CODA_CUDA STREQUAL "ON")
    message(FATAL_ERROR "CODA_CUDA is ON, but: ${_coda_no_cuda}")
  endif()
  message(STATUS "Hopper backend: skipped, ${_coda_no_cuda}")
else()
  find_package(CUDAToolkit REQUIRED)
  set(CODA_CUDA_FOUND ON CACHE INTERNAL "")
  message(STATUS "Hopper backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, CUTLASS in ${CODA_CUTLASS_DIR}")
endif()
unset(_coda_no_cuda)
unset(_coda_oldest_nvcc)

include("${CMAKE_CURRENT_LIST_DIR}/CodaProgram.cmake")
