# How every target of the project is compiled, and the options that change it.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  if(PROJECT_IS_TOP_LEVEL)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug, RelWithDebInfo or MinSizeRel" FORCE)
  else()
    set(CMAKE_BUILD_TYPE Release)  # of the targets here alone
  endif()
endif()

set(CODA_SANITIZE "" CACHE STRING "Sanitizers for -fsanitize=, such as address,undefined")
if(PROJECT_IS_TOP_LEVEL)
  set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
  find_program(CODA_CCACHE ccache)
  mark_as_advanced(CODA_CCACHE)
  if(CODA_CCACHE)
    # Where its folder cannot be written every compilation would fail. The second time this takes milliseconds.
    file(TOUCH "${PROJECT_BINARY_DIR}/CMakeFiles/empty.cpp")
    separate_arguments(_coda_compiler UNIX_COMMAND "${CMAKE_CXX_COMPILER_ARG1}")
    list(PREPEND _coda_compiler "${CMAKE_CXX_COMPILER}")
    execute_process(
      COMMAND "${CODA_CCACHE}" ${_coda_compiler} -c empty.cpp -o empty.o
      WORKING_DIRECTORY "${PROJECT_BINARY_DIR}/CMakeFiles"
      RESULT_VARIABLE _coda_result
      OUTPUT_VARIABLE _coda_message
      ERROR_VARIABLE _coda_message
      ERROR_STRIP_TRAILING_WHITESPACE)
    if(NOT _coda_result EQUAL 0)
      message(STATUS "ccache: left out, ${CODA_CCACHE} compiles no empty file: ${_coda_message}")
      set(CODA_CCACHE "")
    endif()
  endif()
  if(CODA_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER "${CODA_CCACHE}")
  endif()
endif()
# This machine's instructions for this project's own builds, what others' machines have for those that embed it.
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_CROSSCOMPILING)
  set(_coda_default_arch native)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(_coda_default_arch x86-64-v3)
else()
  set(_coda_default_arch "")
endif()
set(CODA_CPU_ARCH "${_coda_default_arch}" CACHE STRING "Value of -march=, or empty for the compiler's own")
unset(_coda_default_arch)

# What changes the code or the layout of a program's types. Programs are templates, so whoever instantiates one must
# agree with the library on the width of a vector register: these are public.
# The two of mathematics change no result; both let loops with a branch or a square root become vector code.
set(CODA_CPU_FLAGS -fno-math-errno -fno-trapping-math)
if(CODA_CPU_ARCH)
  list(PREPEND CODA_CPU_FLAGS -march=${CODA_CPU_ARCH})
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "GNU|Clang")
  # They note that wide vectors have another calling convention elsewhere; all here are built by one compiler.
  list(APPEND CODA_CPU_FLAGS -Wno-psabi)
endif()
add_library(coda_abi INTERFACE)
target_compile_features(coda_abi INTERFACE cxx_std_20)
target_compile_options(coda_abi INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${CODA_CPU_FLAGS}>")

if(CODA_SANITIZE)
  set(_coda_sanitize -fsanitize=${CODA_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  if(CODA_SANITIZE MATCHES "address")
    # AddressSanitizer traps null too; calls in place of inline checks halve the time to compile a program.
    list(APPEND _coda_sanitize -fno-sanitize=null,object-size,vptr)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      list(APPEND _coda_sanitize --param=asan-instrumentation-with-call-threshold=50)
    endif()
  endif()
  target_compile_options(coda_abi INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${_coda_sanitize}>")
  target_link_options(coda_abi INTERFACE -fsanitize=${CODA_SANITIZE})
  unset(_coda_sanitize)
endif()

# coda_warnings(<target>): the warnings that this project's own sources are free of.
function(coda_warnings target)
  set(werror "")
  if(CODA_WERROR)
    set(werror -Werror)
  endif()
  target_compile_options(
    ${target}
    PRIVATE $<$<COMPILE_LANGUAGE:C,CXX>:-Wall>
            $<$<COMPILE_LANGUAGE:C,CXX>:-Wextra>
            $<$<COMPILE_LANGUAGE:C,CXX>:-Wpedantic>
            $<$<COMPILE_LANGUAGE:C,CXX>:-Wshadow>
            # GCC 12 sees an overlap in every `std::string + "literal"` (its bug 105651).
            $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>
            # GCC 13 sees a range of negative length where vectors of bytes are ordered.
            $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overread>
            # Members that only a build with CUDA reads.
            $<$<COMPILE_LANG_AND_ID:CXX,Clang>:-Wno-unused-private-field>
            "$<$<COMPILE_LANGUAGE:C,CXX>:${werror}>"
            # nvcc's own generated host code is neither pedantic nor free of shadowing.
            "$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>"
            "$<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${CODA_WERROR}>>:-Xcompiler=-Werror>")
endfunction()

# coda_exports(<target>): a shared library shows what coda/exports.map lists, and nothing else.
function(coda_exports target)
  set(map "${PROJECT_SOURCE_DIR}/coda/exports.map")
  target_link_options(${target} PRIVATE "-Wl,--version-script=${map}")
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS "${map}")
endfunction()
