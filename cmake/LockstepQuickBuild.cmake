# Builds that are made once and from nothing, as CI's, in less time: tests' own sources and emulated kernels have their
# standard headers precompiled and are compiled at -O1, kernels for GPUs without nvcc's expensive optimisations. C++ of
# libraries and programs is compiled as ever, but for sanitizers, which have its standard headers precompiled, too.
option(LOCKSTEP_QUICK_BUILD "Tests at -O1 with precompiled headers, kernels for GPUs not made for speed: as CI does" OFF)
if(NOT LOCKSTEP_QUICK_BUILD OR NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")  # clang wants all definitions to be the same
  function(lockstep_quick_library name)
  endfunction()
  function(lockstep_quick_test name)
  endfunction()
  return()
endif()

if(LOCKSTEP_CCACHE)  # by these two it takes precompiled headers
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${LOCKSTEP_CCACHE})
endif()
target_compile_options(lockstep_flags INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<VERSION_GREATER_EQUAL:$<CUDA_COMPILER_VERSION>,13>>:--Ofast-compile=mid>)

# lockstep_precompile(name headers ...): an object library that is there for its precompiled header.
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
# A program's precompiled header must be compiled as code of programs is, not as that of shared libraries.
set_target_properties(lockstep_test_headers PROPERTIES POSITION_INDEPENDENT_CODE OFF)
target_compile_options(lockstep_test_headers PRIVATE -fPIE -O0)
function(lockstep_quick_test name)
  target_precompile_headers(${name} REUSE_FROM lockstep_test_headers)
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-O0>)
endfunction()

# At -O3 g++ 12 would warn of overflows in the precompiled std::string that are not there; sanitizers' presets are at -O1.
if(LOCKSTEP_SANITIZE)
  lockstep_precompile(lockstep_standard_headers ${standard_headers})
  function(lockstep_quick_library name)
    target_precompile_headers(${name} REUSE_FROM lockstep_standard_headers)
  endfunction()
else()
  function(lockstep_quick_library name)
  endfunction()
endif()
