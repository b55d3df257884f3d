# Finds the PyTorch that CODA_TORCH_PYTHON has, for the operators in coda/torch. Sets CODA_TORCH_FOUND.
# They use PyTorch's stable ABI as of 2.10: what is built with one version runs with all later ones.
set(_coda_default OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(_coda_default AUTO)
endif()
set(CODA_TORCH ${_coda_default} CACHE STRING "Build the operators for PyTorch: ON, OFF, or AUTO (if there is a PyTorch)")
set_property(CACHE CODA_TORCH PROPERTY STRINGS AUTO ON OFF)
set(CODA_TORCH_PYTHON "" CACHE STRING "Python that has PyTorch 2.10 or newer; empty: the one in .deps/hf, or python3")
set(CODA_TORCH_WITH "${CODA_TORCH_PYTHON}") # the answer may be another one next time
if(NOT CODA_TORCH_WITH AND SKBUILD)
  set(CODA_TORCH_WITH "${Python_EXECUTABLE}") # pip's
elseif(NOT CODA_TORCH_WITH AND EXISTS "${PROJECT_SOURCE_DIR}/.deps/hf/bin/python")
  set(CODA_TORCH_WITH "${PROJECT_SOURCE_DIR}/.deps/hf/bin/python")
elseif(NOT CODA_TORCH_WITH)
  set(CODA_TORCH_WITH python3)
endif()

set(CODA_TORCH_FOUND OFF)
if(NOT CODA_TORCH OR CODA_SANITIZE)
  return()
endif()

# Importing PyTorch would take seconds, and fail where its CUDA libraries are missing.
execute_process(
  COMMAND "${CODA_TORCH_WITH}" -c "import importlib.util as i; print(i.find_spec('torch').submodule_search_locations[0])"
  OUTPUT_VARIABLE CODA_TORCH_DIR
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
  RESULT_VARIABLE _coda_result)
set(_coda_missing "")
if(NOT _coda_result EQUAL 0)
  set(_coda_missing "${CODA_TORCH_WITH} has no PyTorch")
elseif(NOT EXISTS "${CODA_TORCH_DIR}/include/torch/csrc/stable/library.h")
  set(_coda_missing "${CODA_TORCH_DIR} has no stable ABI")
else()
  file(STRINGS "${CODA_TORCH_DIR}/include/torch/headeronly/version.h" _coda_version REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
  string(REGEX REPLACE "[^0-9;]" "" _coda_version "${_coda_version}")
  list(JOIN _coda_version "." _coda_version)
  if(_coda_version VERSION_LESS 2.10)
    set(_coda_missing "PyTorch ${_coda_version} is older than 2.10")
  endif()
endif()
if(_coda_missing)
  if(NOT CODA_TORCH STREQUAL "AUTO")
    message(FATAL_ERROR "CODA_TORCH: ${_coda_missing}")
  endif()
  message(STATUS "Operators for PyTorch: skipped, ${_coda_missing}")
  return()
endif()
set(CODA_TORCH_FOUND ON)
message(STATUS "Operators for PyTorch: with the headers of ${_coda_version}")
