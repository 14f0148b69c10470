# For builds that are made once and from scratch, such as CI's, in less time. Tests and libraries use precompiled
# standard headers; tests are compiled at -O0, libraries at -O1, and nvcc skips its optimizations. The two lists below
# stay optimized: libraries whose instructions are counted, and tests that spend their time in their own sources; so do
# kernels with the property LOCKSTEP_OPTIMIZED, which do not work otherwise. Programs' own sources stay optimized, too:
# if several objects contain an inline function, the linker takes the first, and theirs come before the libraries'.
option(LOCKSTEP_QUICK_BUILD "Precompiled headers, and only what must be fast is optimized: as CI does" OFF)
if(NOT LOCKSTEP_QUICK_BUILD OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # clang wants identical definitions
  foreach(what library test)
    function(lockstep_quick_${what} name)
    endfunction()
  endforeach()
  return()
endif()

if(LOCKSTEP_CCACHE)  # these two settings let ccache handle precompiled headers
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${LOCKSTEP_CCACHE})
endif()
target_compile_options(lockstep_flags INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<VERSION_GREATER_EQUAL:$<CUDA_COMPILER_VERSION>,13>,$<NOT:$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_OPTIMIZED>>>>:--Ofast-compile=max>)

# Libraries that are built as in a release: the gate counts their instructions.
set(lockstep_counted
  lockstep_core lockstep_collectives lockstep_plan lockstep_algorithms lockstep_schedules
  lockstep_reduce lockstep_kernels lockstep_kernel_cases lockstep_kernel_checks
  lockstep_serve lockstep_calls lockstep_kernel_bench lockstep_gate_generation)
# Tests whose time is spent in their own sources: they emulate hardware, hold vector code, read large tables or many
# inputs.
set(lockstep_hot_tests
  attention_tiled_test attention_emulated_test attention_hopper_emulated_test experts_hopper_emulated_test cuda_emulated_test cuda_ranks_emulated_test gemm_test vector_math_test
  direct_lowering_test schedules_test trainer_queued_test fuzz_readers_test
  bench_flags_fuzz_test)

# lockstep_precompile(name headers ...): an object library that exists for its precompiled header.
function(lockstep_precompile name)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} OBJECT ${PROJECT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE lockstep_flags)
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
set(standard_headers
  <algorithm> <array> <atomic> <bit> <chrono> <cmath> <cstddef> <cstdint> <cstring> <filesystem> <fstream> <functional>
  <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <thread> <tuple> <utility>
  <vector>)

lockstep_precompile(lockstep_test_headers ${standard_headers} <gtest/gtest.h>)
target_link_libraries(lockstep_test_headers PRIVATE GTest::gtest)
# A program's precompiled header must be compiled like code of programs, not of shared libraries.
set_target_properties(lockstep_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
target_compile_options(lockstep_test_headers PRIVATE -fPIE -O0)
function(lockstep_quick_test name)
  if(name IN_LIST lockstep_hot_tests)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  else()
    target_precompile_headers(${name} REUSE_FROM lockstep_test_headers)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  endif()
endfunction()

# Not for the counted libraries: at -O3, g++ 12 falsely warns of overflows in the precompiled std::string.
lockstep_precompile(lockstep_standard_headers ${standard_headers})
target_compile_options(lockstep_standard_headers PRIVATE -O1)
function(lockstep_quick_library name)
  if(LOCKSTEP_SANITIZE OR NOT name IN_LIST lockstep_counted)
    target_precompile_headers(${name} REUSE_FROM lockstep_standard_headers)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  endif()
endfunction()

set(lockstep_quick_flags -O1)  # last flags that records of such a build report
