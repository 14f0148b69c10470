# Decides what a build from nothing costs: which code is optimized, and which headers are precompiled. docs/building.md has what
# each decision saves. With LOCKSTEP_UNITE and g++, only hot code is compiled with the build type's own optimization:
#   - lockstep_counted: the gate counts its instructions
#   - lockstep_timed: a benchmark's times or a simulation's duration are spent in it
# The second kind is compiled at -O2, unless its time goes into loops over elements (lockstep_loops).
# Everything else, such as command lines, JSON, tables, records and readers of files, is compiled at -O1. If several objects contain
# the same inline function, the linker takes the first, which may be one at -O1. Hot loops are therefore within hot libraries,
# whose small functions are inlined there, and a program whose own instructions are counted is hot as well.
option(LOCKSTEP_QUICK_BUILD "As CI builds: only what the gate counts is optimized, tests and CUDA kernels are not" OFF)
set(lockstep_counted
  lockstep_core lockstep_collectives lockstep_plan lockstep_algorithms lockstep_schedules
  lockstep_reduce lockstep_kernels lockstep_kernel_cases lockstep_kernel_checks
  lockstep_serve lockstep_calls lockstep_kernel_bench kernels_bench generation_bench)
set(lockstep_timed
  lockstep_transports lockstep_executors lockstep_cuda_combiner lockstep_cuda_executor lockstep_interpreter lockstep_emulated
  lockstep_simulator_engine lockstep_simulator_contention lockstep_simulator_network lockstep_simulator_prices
  lockstep_simulator_predict lockstep_workload lockstep_trainer_tokens lockstep_trainer_worker
  lockstep_parallel_context lockstep_parallel_layers lockstep_parallel_compress)
set(lockstep_loops lockstep_parallel_context lockstep_parallel_layers lockstep_parallel_compress)
# Tests whose time is spent in their own sources: they emulate hardware, hold vector code, read large tables or many
# inputs.
set(lockstep_hot_tests
  attention_tiled_test attention_emulated_test attention_hopper_emulated_test experts_hopper_emulated_test cuda_emulated_test cuda_ranks_emulated_test gemm_test vector_math_test
  direct_lowering_test schedules_test trainer_queued_test fuzz_readers_test
  bench_flags_fuzz_test)

function(lockstep_is_hot out name)
  set(${out} OFF PARENT_SCOPE)
  if(name IN_LIST lockstep_counted OR (name IN_LIST lockstep_timed AND NOT LOCKSTEP_QUICK_BUILD))
    set(${out} ON PARENT_SCOPE)
  endif()
endfunction()

if(NOT LOCKSTEP_UNITE OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # clang wants identical definitions
  function(lockstep_precompile name)
  endfunction()
  foreach(what library program test)
    function(lockstep_compile_${what} name)
    endfunction()
  endforeach()
  return()
endif()

if(LOCKSTEP_CCACHE)  # these two settings let ccache handle precompiled headers
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${LOCKSTEP_CCACHE})
endif()

# lockstep_precompile(name headers ...): an object library that exists for its precompiled header. g++ uses one only for sources that
# are compiled with the same options and definitions.
function(lockstep_precompile name)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/${name}.cpp CONTENT "")
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE lockstep_flags)
  target_precompile_headers(${name} PRIVATE ${ARGN})
endfunction()
target_compile_definitions(lockstep_flags INTERFACE $<TARGET_PROPERTY:fmt::fmt,INTERFACE_COMPILE_DEFINITIONS>)
set(standard_headers
  <algorithm> <array> <atomic> <bit> <charconv> <chrono> <cmath> <cstddef> <cstdint> <cstdio> <cstring> <deque> <exception>
  <filesystem> <fstream> <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <set> <span> <sstream> <string>
  <string_view> <thread> <tuple> <utility> <vector>)

lockstep_precompile(lockstep_hot_headers ${standard_headers} <fmt/format.h>)
target_compile_options(lockstep_hot_headers PRIVATE -O2)
lockstep_precompile(lockstep_cold_headers ${standard_headers} <fmt/format.h>)
target_compile_options(lockstep_cold_headers PRIVATE -O1)
function(lockstep_compile_library name)
  lockstep_is_hot(hot ${name})
  if(LOCKSTEP_SANITIZE OR NOT hot)
    target_precompile_headers(${name} REUSE_FROM lockstep_cold_headers)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
    return()
  endif()
  if(name IN_LIST lockstep_counted OR name IN_LIST lockstep_loops)
    return()  # plans took 1 to 4 % more instructions, schedules 2 to 9 % fewer, with a precompiled header
  endif()
  target_precompile_headers(${name} REUSE_FROM lockstep_hot_headers)
  # g++ 12 falsely warns of precompiled headers, which it no longer knows as the system's: std::string, intrinsics.
  target_compile_options(${name} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-O2 -Wno-array-bounds -Wno-stringop-overflow -Wno-maybe-uninitialized>)
endfunction()
function(lockstep_compile_program name)
  lockstep_is_hot(hot ${name})
  if(NOT hot)
    set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)  # -fPIC, as the precompiled header, not -fPIE
    target_precompile_headers(${name} REUSE_FROM lockstep_cold_headers)
    target_compile_options(${name} PRIVATE -fPIC -O1)
  endif()
endfunction()

if(NOT LOCKSTEP_QUICK_BUILD)
  function(lockstep_compile_test name)
  endfunction()
  return()
endif()

target_compile_options(lockstep_flags INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<VERSION_GREATER_EQUAL:$<CUDA_COMPILER_VERSION>,13>,$<NOT:$<BOOL:$<TARGET_PROPERTY:LOCKSTEP_OPTIMIZED>>>>:--Ofast-compile=max>)
lockstep_precompile(lockstep_test_headers ${standard_headers} <gtest/gtest.h>)
target_link_libraries(lockstep_test_headers PRIVATE GTest::gtest)
# A program's precompiled header must be compiled like code of programs, not of shared libraries.
set_target_properties(lockstep_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
target_compile_options(lockstep_test_headers PRIVATE -fPIE -O0)
function(lockstep_compile_test name)
  if(name IN_LIST lockstep_hot_tests)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O1>)
  else()
    target_precompile_headers(${name} REUSE_FROM lockstep_test_headers)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
  endif()
endfunction()

set(lockstep_quick_flags -O1)  # last flags that records of such a build report
