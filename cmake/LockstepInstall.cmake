# `cmake --install` and `cpack`. Two components: `programs` (with man pages, shell completion, machine descriptions and docs)
# and `development` (libraries, headers, find_package(Lockstep)); they become the packages lockstep and lockstep-dev.
include(CMakePackageConfigHelpers)

# ---- Programs
get_target_property(installed_programs programs MANUALLY_ADDED_DEPENDENCIES)
get_target_property(linked_names programs linked_names)
list(REMOVE_ITEM installed_programs ${linked_names})
install(TARGETS ${installed_programs} RUNTIME COMPONENT programs)
foreach(link IN LISTS linked_names)  # a symbolic link is installed as one
  install(PROGRAMS ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/${link} TYPE BIN COMPONENT programs)
endforeach()

# Each program describes its flags (--describe); its man pages and shell completion are made of that.
set(manuals ${PROJECT_BINARY_DIR}/manuals)
set(manuals_script ${PROJECT_SOURCE_DIR}/cmake/manuals.py)
list(APPEND installed_programs ${linked_names})
list(REMOVE_ITEM installed_programs collective_perf)  # known by its other names
list(TRANSFORM installed_programs PREPEND ${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/ OUTPUT_VARIABLE program_files)
add_custom_command(OUTPUT ${manuals}/completions/lockstep
  COMMAND ${LOCKSTEP_PYTHON} ${manuals_script} --output ${manuals} ${program_files}
  DEPENDS ${installed_programs} ${manuals_script}
  COMMENT "Making man pages and shell completion"
  VERBATIM)
add_custom_target(manuals ALL DEPENDS ${manuals}/completions/lockstep)
install(DIRECTORY ${manuals}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT programs)
install(DIRECTORY ${manuals}/completions DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion COMPONENT programs)

install(DIRECTORY simulator/machine/machines DESTINATION ${CMAKE_INSTALL_DATADIR}/lockstep COMPONENT programs)
install(FILES README.md CONTRIBUTING.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)

# ---- Libraries: lockstep_NAME here is Lockstep::NAME there. Those that are not listed are internal to the programs.
set(exported core reduce kernels kernel_cases collectives plan algorithms transports executors schedules interpreter workload
             simulator_engine simulator_contention simulator_machine simulator_network simulator_prices simulator_predict
             simulator emulated)
add_library(lockstep_simulator INTERFACE)  # prediction of a step, with all that it needs
target_link_libraries(lockstep_simulator INTERFACE lockstep_simulator_predict)
foreach(name IN LISTS exported)
  set(target lockstep_${name})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} INTERFACE $<INSTALL_INTERFACE:cxx_std_20>)
  target_include_directories(${target} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/lockstep>)
  target_link_libraries(${target} INTERFACE $<INSTALL_INTERFACE:Threads::Threads>)
  install(TARGETS ${target} EXPORT LockstepTargets ARCHIVE COMPONENT development)
endforeach()

# Headers keep their paths: #include "collectives/plan/plan.h". Left out are those of tests, of sources that use Highway or
# MPI, and of libraries that are not exported.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}
  core/*.h kernels/*.h collectives/*.h schedules/*.h workload/*.h simulator/*.h)
list(FILTER headers EXCLUDE REGEX "(-inl|case_checks|mpi_calls)\\.h$")
list(FILTER headers EXCLUDE REGEX "^kernels/.*/emulated_|^collectives/(backends|libraries|tuning)/")
list(FILTER headers EXCLUDE REGEX "^core/(record|provenance|input_file|output_file|async_file)")
foreach(header IN LISTS headers)
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/lockstep/${folder} COMPONENT development)
endforeach()

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/Lockstep)
install(EXPORT LockstepTargets NAMESPACE Lockstep:: DESTINATION ${config_folder} COMPONENT development)
get_property(lockstep_imported_names GLOBAL PROPERTY lockstep_imported_names)
string(JOIN " " lockstep_exported ${exported})
configure_package_config_file(cmake/LockstepConfig.cmake.in ${PROJECT_BINARY_DIR}/LockstepConfig.cmake
  INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/LockstepConfig.cmake ${PROJECT_BINARY_DIR}/LockstepConfigVersion.cmake
  DESTINATION ${config_folder} COMPONENT development)

# ---- Packages: `cpack` makes the Debian packages, `cpack --config CPackSourceConfig.cmake` the source package.
set(CPACK_PACKAGE_NAME lockstep)
set(CPACK_PACKAGE_VENDOR Lockstep)
set(CPACK_PACKAGE_CONTACT "Lockstep maintainers <maintainers@lockstep.invalid>" CACHE STRING "Maintainer of the packages")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "benchmarks and simulator of what distributed training costs")
set(CPACK_GENERATOR DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL programs development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME lockstep)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_RECOMMENDS openmpi-bin)
set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION
"Measures, counts and simulates collectives, kernels, pipeline schedules,
sharding and whole training steps: on a laptop, over MPI, or on NVIDIA GPUs.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME lockstep-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "libfmt-dev, nlohmann-json3-dev, libpugixml-dev, libhwy-dev")
if(LOCKSTEP_HAVE_ONEDNN)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libdnnl-dev")
endif()
if(LOCKSTEP_HAVE_MPI)
  string(APPEND CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS ", libopenmpi-dev")
endif()
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
"Static libraries, headers and CMake's find_package(Lockstep): plans of
collectives, pipeline schedules, kernels, and the simulator of training steps.")

# The source package holds the files of the current commit, with its revision in cmake/revision.txt, and no others.
set(CPACK_SOURCE_GENERATOR TGZ)
set(CPACK_SOURCE_PACKAGE_FILE_NAME lockstep-${PROJECT_VERSION})
set(CPACK_SOURCE_INSTALLED_DIRECTORIES ${PROJECT_SOURCE_DIR} /)  # replaced when cpack runs, by what git archives
set(CPACK_SOURCE_IGNORE_FILES "")
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_BINARY_DIR}/CPackTracked.cmake)
file(CONFIGURE OUTPUT ${CPACK_PROJECT_CONFIG_FILE} @ONLY CONTENT [=[
if(CPACK_GENERATOR STREQUAL "TGZ")
  set(tracked ${CPACK_PACKAGE_DIRECTORY}/_CPack_Packages/tracked)
  set(CPACK_INSTALLED_DIRECTORIES ${tracked} /)
  file(REMOVE_RECURSE ${tracked})
  file(MAKE_DIRECTORY ${tracked})
  execute_process(COMMAND git -c safe.directory=* -C "@PROJECT_SOURCE_DIR@" archive --output ${tracked}.tar HEAD
                  COMMAND_ERROR_IS_FATAL ANY)
  file(ARCHIVE_EXTRACT INPUT ${tracked}.tar DESTINATION ${tracked})
endif()
]=])
include(CPack)
