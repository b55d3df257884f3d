# cmake -DCOMPILER= -DSOURCE= -DINCLUDES= -DARCH= -P CheckDerivedCost.cmake
# The derived backward of SwiGLU must not take more instructions than the one that is written by hand.
set(arch "")
if(ARCH)
  set(arch "-march=${ARCH}")
endif()
foreach(form IN ITEMS DERIVED BY_HAND)
  execute_process(
    COMMAND ${COMPILER} -std=c++20 -O3 ${arch} -fno-math-errno -fno-trapping-math -Wno-psabi -D${form} -I${INCLUDES} -S -o -
            ${SOURCE}
    RESULT_VARIABLE status
    OUTPUT_VARIABLE assembly
    ERROR_VARIABLE message)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "derived_cost: ${form}: expected ${SOURCE} to compile, got:\n${message}")
  endif()
  # An instruction is a line that begins with a tab and a letter; one with a dot is a directive. Moves, and what
  # computes addresses, are not counted: which registers are saved on the way differs by luck.
  string(REGEX MATCHALL "\n\t[a-z]" lines "${assembly}")
  string(REGEX MATCHALL "\n\t(v?mov[a-z0-9]*|ld[pr]|st[pr]|addq?|subq?)\t" moves "${assembly}")
  list(LENGTH lines all)
  list(LENGTH moves moved)
  math(EXPR ${form} "${all} - ${moved}")
endforeach()
message(STATUS "derived_cost: ${DERIVED} instructions derived, ${BY_HAND} by hand")
if(BY_HAND LESS 40 OR DERIVED GREATER BY_HAND)
  message(FATAL_ERROR "derived_cost: expected at most the ${BY_HAND} instructions of the hand-written form, got ${DERIVED}")
endif()
