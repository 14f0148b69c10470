# Compiler flags, and the functions with which every folder declares what it builds.
include(GNUInstallDirs)

option(LOCKSTEP_WERROR "Treat warnings as errors (CI does)" OFF)
set(LOCKSTEP_SANITIZE "" CACHE STRING "Sanitizers for all targets: empty, 'address,undefined' or 'thread'")
set(LOCKSTEP_LIBRARIES STATIC CACHE STRING
  "Kind of our libraries: STATIC, or SHARED if many programs are carried elsewhere: kernels are then there once, and CUDA's runtime is shared, too")
option(LOCKSTEP_UNITE "Compile several sources of a target at a time: a build from nothing takes half as long" OFF)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

find_program(LOCKSTEP_CCACHE ccache)
if(LOCKSTEP_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${LOCKSTEP_CCACHE})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${LOCKSTEP_CCACHE})
endif()

find_program(LOCKSTEP_PYTHON python3 HINTS /usr/bin REQUIRED)

find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(pugixml REQUIRED)
find_package(GTest REQUIRED)
include(GoogleTest)

# All of our targets link this. CMake 3.25 cannot request C++20 from nvcc, so the standard is passed as a flag.
add_library(lockstep_flags INTERFACE)
target_compile_options(lockstep_flags INTERFACE
  -std=c++20
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wconversion -Wshadow>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${LOCKSTEP_WERROR}>>:-Werror>
  # g++ 12 falsely warns of an overlap in "text" + std::string (GCC bug 105651, fixed in 13).
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${LOCKSTEP_WERROR}>>:-Werror=all-warnings>)
target_include_directories(lockstep_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(lockstep_flags INTERFACE Threads::Threads)
# g++ 12 falsely warns of uninitialised members in the standard library's own code when it instruments it.
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>>)
  target_link_options(lockstep_flags INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()
# g++ treats a source that is compiled together with others as a header: it would warn of unnamed namespaces that differ
# and of names that shadow each other.
if(LOCKSTEP_UNITE)
  target_compile_options(lockstep_flags INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:$<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage> -Wno-shadow>)
endif()

include(LockstepQuickBuild)

# With LOCKSTEP_UNITE, a target's sources are compiled several at a time, in the groups that ci/source_groups.py makes:
# most of the cost of each source is its headers. Preset dev compiles each source alone, and CI's stage `alone` parses
# each alone, which checks that each includes what it uses.
function(lockstep_unite_later name)
  if(LOCKSTEP_UNITE)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL lockstep_unite ${name})")  # when it has all of its sources
  endif()
endfunction()
function(lockstep_unite name)
  get_target_property(sources ${name} SOURCES)
  list(FILTER sources EXCLUDE REGEX "^(/|\\$<)")  # neither generated ones nor objects
  # These are compiled alone, so that a test can replace them when it links the library.
  list(FILTER sources EXCLUDE REGEX "_absent\\.cpp$|(^|/)(cuda_call|cuda_context|gemm_cublaslt|attention_choice_cuda|experts_choice_cuda|tensor_map)\\.cpp$")
  if(NOT sources)
    return()
  endif()
  execute_process(
    COMMAND ${LOCKSTEP_PYTHON} ${PROJECT_SOURCE_DIR}/ci/source_groups.py ${sources}
    WORKING_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE lines OUTPUT_STRIP_TRAILING_WHITESPACE
    COMMAND_ERROR_IS_FATAL ANY)
  string(REPLACE "\n" ";" lines "${lines}")
  foreach(line IN LISTS lines)
    string(REPLACE " " ";" line "${line}")
    list(GET line 0 group)
    list(GET line 1 source)
    set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${name}_${group})
  endforeach()
  set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  # g++ lets a source grow by inlining without limit up to 10,000 instructions, and by 40 % beyond. A group has up to
  # ten sources: with the limit for a single source, schedules executed 10 % more instructions.
  lockstep_is_hot(hot ${name})
  if(hot)
    target_compile_options(${name} PRIVATE
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:--param=large-unit-insns=100000>)
  endif()
endfunction()

# lockstep_imported(name file): a library of others as Lockstep::name. Users of our installed libraries find it again
# (cmake/LockstepConfig.cmake.in): no path of this machine is installed.
function(lockstep_imported name file)
  add_library(Lockstep::${name} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(Lockstep::${name} PROPERTIES IMPORTED_LOCATION ${file})
  set_property(GLOBAL APPEND PROPERTY lockstep_imported_names ${name})
endfunction()

# lockstep_folder(out ending folders ...): the sources of these folders with this ending; .cpp leaves out x_test.cpp,
# x_absent.cpp.
function(lockstep_folder out ending)
  list(TRANSFORM ARGN APPEND /*${ending} OUTPUT_VARIABLE patterns)
  file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${CMAKE_CURRENT_SOURCE_DIR} ${patterns})
  if(ending STREQUAL ".cpp")
    list(FILTER sources EXCLUDE REGEX "_(test|absent)\\.cpp$")
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# The sources that a library or test names, which lie in its FOLDER; with none named, those of the folder with this ending.
function(lockstep_sources out ending folder)
  if(folder STREQUAL "")
    set(folder .)
  endif()
  if(ARGN)
    set(sources ${ARGN})
    list(TRANSFORM sources PREPEND ${folder}/ REGEX "^[^/]")  # generated ones have whole paths
  else()
    lockstep_folder(sources ${ending} ${folder})
  endif()
  list(TRANSFORM sources REPLACE "^\\./" "")
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# lockstep_library(name [FOLDER folder] [SOURCES a.cpp ...] [LINKS targets ...] [PRIVATE_LINKS targets ...]);
# without SOURCES all of the folder's
function(lockstep_library name)
  cmake_parse_arguments(arg "" "FOLDER" "SOURCES;LINKS;PRIVATE_LINKS" ${ARGN})
  lockstep_sources(arg_SOURCES .cpp "${arg_FOLDER}" ${arg_SOURCES})
  add_library(${name} ${LOCKSTEP_LIBRARIES} ${arg_SOURCES})
  set_target_properties(${name} PROPERTIES DEFINE_SYMBOL "")  # the same definitions as in a precompiled header
  target_link_libraries(${name} PUBLIC $<BUILD_INTERFACE:lockstep_flags> ${arg_LINKS} PRIVATE ${arg_PRIVATE_LINKS})
  lockstep_compile_library(${name})
  lockstep_unite_later(${name})
endfunction()

# lockstep_backend_sources(target backend ON a.cpp ... OFF a_absent.cpp ...): which sources are compiled depends on a backend;
# in those that stand in for it, LOCKSTEP_WHY_<backend> is why it is off.
function(lockstep_backend_sources target backend)
  cmake_parse_arguments(arg "" "" "ON;OFF" ${ARGN})
  if(LOCKSTEP_HAVE_${backend})
    target_sources(${target} PRIVATE ${arg_ON})
  else()
    target_sources(${target} PRIVATE ${arg_OFF})
    set_property(SOURCE ${arg_OFF} APPEND PROPERTY COMPILE_DEFINITIONS
      "LOCKSTEP_WHY_${backend}=\"${LOCKSTEP_WHY_${backend}}\"")
  endif()
endfunction()

# lockstep_test(name [FOLDER folder] [SOURCES a_test.cpp ...] LINKS targets ... [LABELS words ...] [TIMEOUT s]): a GoogleTest
# program; without SOURCES of all tests of the folder
function(lockstep_test name)
  cmake_parse_arguments(arg "" "FOLDER;TIMEOUT" "SOURCES;LINKS;LABELS" ${ARGN})
  lockstep_sources(arg_SOURCES _test.cpp "${arg_FOLDER}" ${arg_SOURCES})
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(LOCKSTEP_SANITIZE)
    math(EXPR arg_TIMEOUT "${arg_TIMEOUT} * 4")  # sanitizers on a busy machine are this much slower
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE lockstep_flags ${arg_LINKS} GTest::gtest GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
  lockstep_compile_test(${name})
  lockstep_unite_later(${name})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${arg_TIMEOUT} COST ${arg_TIMEOUT} LABELS "${arg_LABELS}")  # longest first
  if("gpu" IN_LIST arg_LABELS)  # without a GPU it runs no test; ctest then reports it as skipped
    set_tests_properties(${name} PROPERTIES SKIP_REGULAR_EXPRESSION "  SKIPPED ")
  endif()
  # Targets that build only tests: all of them, those with a label, and those that CI runs under the address sanitizer.
  set(groups all ${arg_LABELS})
  if(NOT "${arg_LABELS}" MATCHES "slow|gpu")
    list(APPEND groups sanitized)
  endif()
  foreach(group IN LISTS groups)
    if(NOT TARGET tests_${group})
      add_custom_target(tests_${group})
    endif()
    add_dependencies(tests_${group} ${name})
  endforeach()
endfunction()

# lockstep_program(name SOURCES main.cpp ... LINKS targets ... NAMES names ... [TOOL]): a binary in build/bin. With NAMES, it is
# called by these, which are symbolic links to it, and each is a target. The target `programs` builds all programs for users: no
# tests, and no TOOL, which only this repository uses.
add_custom_target(programs)
function(lockstep_program name)
  cmake_parse_arguments(arg "TOOL" "" "SOURCES;LINKS;NAMES" ${ARGN})
  add_executable(${name} ${arg_SOURCES})
  target_link_libraries(${name} PRIVATE lockstep_flags ${arg_LINKS})
  lockstep_compile_program(${name})
  if(NOT arg_TOOL)
    add_dependencies(programs ${name})
  endif()
  foreach(link IN LISTS arg_NAMES)
    set(file ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${link})
    add_custom_command(OUTPUT ${file} COMMAND ${CMAKE_COMMAND} -E create_symlink ${name} ${file} DEPENDS ${name} VERBATIM)
    add_custom_target(${link} ALL DEPENDS ${file})
    add_dependencies(programs ${link})
    set_property(TARGET programs APPEND PROPERTY linked_names ${link})
  endforeach()
endfunction()
