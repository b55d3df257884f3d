# Operators for PyTorch by its stable ABI, in this project and in one that found the installed package. What is built
# with one PyTorch runs with all later ones.

# coda_find_pytorch(<python>): the PyTorch that a Python has. Sets CODA_TORCH_DIR and CODA_TORCH_VERSION, or
# CODA_TORCH_MISSING, which says what is wrong with it.
function(coda_find_pytorch python)
  set(CODA_TORCH_MISSING "" PARENT_SCOPE)
  # Importing it would take seconds, and fail where its CUDA libraries are missing.
  execute_process(
    COMMAND "${python}" -c "import importlib.util as i; print(i.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE dir
    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
    RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    set(CODA_TORCH_MISSING "${python} has no PyTorch" PARENT_SCOPE)
    return()
  endif()
  set(CODA_TORCH_DIR "${dir}" PARENT_SCOPE)
  if(NOT EXISTS "${dir}/include/torch/csrc/stable/library.h")
    set(CODA_TORCH_MISSING "${dir} has no stable ABI" PARENT_SCOPE)
    return()
  endif()
  file(STRINGS "${dir}/include/torch/headeronly/version.h" version REGEX "define TORCH_VERSION_(MAJOR|MINOR) ")
  string(REGEX REPLACE "[^0-9;]" "" version "${version}")
  list(JOIN version "." version)
  set(CODA_TORCH_VERSION "${version}" PARENT_SCOPE)
  if(version VERSION_LESS 2.10)
    set(CODA_TORCH_MISSING "PyTorch ${version} is older than 2.10" PARENT_SCOPE)
  endif()
endfunction()

# coda_add_torch_library(<target> <file.cpp>...): what torch.ops.load_library loads, for the PyTorch that
# coda_find_pytorch found. See examples/pytorch_program.
function(coda_add_torch_library target)
  if(NOT CODA_TORCH_DIR OR CODA_TORCH_MISSING)
    message(FATAL_ERROR "coda_add_torch_library(${target}): expected a PyTorch that coda_find_pytorch(<python>) found, "
                        "got none. ${CODA_TORCH_MISSING}")
  endif()
  set(exports "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/torch_exports.map")
  add_library(${target} MODULE ${ARGN})
  target_include_directories(${target} SYSTEM PRIVATE "${CODA_TORCH_DIR}/include")
  target_compile_definitions(${target} PRIVATE TORCH_TARGET_VERSION=0x020a000000000000)
  # libtorch_cpu.so exports std's templates as the oneDNN in it made them, and that is another version: the one that is
  # used here has to find its own first, so it comes before all libraries, even if only a shared one of ours calls it.
  find_package(dnnl CONFIG REQUIRED) # of the caller's folder: a parent of coda's does not see what coda found
  target_link_options(${target} PRIVATE "-Wl,--push-state,--no-as-needed,$<TARGET_FILE:DNNL::dnnl>,--pop-state")
  # As a flag, so that no path leads to PyTorch's folder, which has an OpenMP of its own. What else PyTorch needs may not
  # be here; it is there when this is loaded.
  target_link_libraries(${target} PRIVATE coda::coda DNNL::dnnl "-Wl,${CODA_TORCH_DIR}/lib/libtorch_cpu.so"
                                          ${CMAKE_DL_LIBS})
  target_link_options(${target} PRIVATE -Wl,--unresolved-symbols=ignore-in-shared-libs "-Wl,--version-script=${exports}")
  set_target_properties(${target} PROPERTIES CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON LINK_DEPENDS
                                                                                                       "${exports}")
endfunction()
