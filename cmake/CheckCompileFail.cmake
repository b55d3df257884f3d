# cmake -DCOMPILER= -DSOURCE= -DINCLUDES= -DFLAGS= -P CheckCompileFail.cmake
# SOURCE's first line is `// expect: <text>`. Succeeds when compiling it fails, with that text in the message and with
# few enough errors that a reader finds it: at most 3, or N after a second line `// max-errors: N`.
file(STRINGS "${SOURCE}" head LIMIT_COUNT 2)
list(GET head 0 first)
if(NOT first MATCHES "^// expect: (.+)$")
  message(FATAL_ERROR "compile_fail: ${SOURCE}: expected a first line `// expect: <text>`, got `${first}`")
endif()
set(expected "${CMAKE_MATCH_1}")
set(most 3)
if(head MATCHES ";// max-errors: ([0-9]+)")
  set(most ${CMAKE_MATCH_1})
endif()

separate_arguments(FLAGS)
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env LC_ALL=C ${COMPILER} -std=c++20 ${FLAGS} -fopenmp -fsyntax-only -I${INCLUDES}
          ${SOURCE}
  RESULT_VARIABLE status
  OUTPUT_VARIABLE output
  ERROR_VARIABLE output)
if(status EQUAL 0)
  message(FATAL_ERROR "compile_fail: ${SOURCE}: expected it not to compile, but it does")
endif()
string(FIND "${output}" "${expected}" position)
if(position EQUAL -1)
  message(FATAL_ERROR "compile_fail: ${SOURCE}: expected the message to contain `${expected}`, got:\n${output}")
endif()
string(REGEX MATCHALL "error: " errors "${output}")
list(LENGTH errors count)
if(count GREATER most)
  message(FATAL_ERROR "compile_fail: ${SOURCE}: expected at most ${most} errors, got ${count}:\n${output}")
endif()
