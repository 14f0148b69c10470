# Tests of ranks under mpirun: more ranks than cores, which therefore give way to each other.
if(NOT LOCKSTEP_HAVE_MPI)
  return()
endif()
find_program(LOCKSTEP_MPIRUN NAMES mpirun.openmpi mpirun REQUIRED)
set(mpirun ${LOCKSTEP_MPIRUN} --oversubscribe --allow-run-as-root --bind-to none --mca mpi_yield_when_idle 1)

# Their modes that fail are run by test_lost_ranks.py.
add_executable(mpi_ranks mpi_ranks.cpp)
target_link_libraries(mpi_ranks PRIVATE lockstep_executors lockstep_algorithms lockstep_libraries)
add_executable(mpi_mesh mpi_mesh.cpp)
target_link_libraries(mpi_mesh PRIVATE lockstep_backends lockstep_trainer_worker)
set_target_properties(mpi_ranks mpi_mesh PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
foreach(group all mpi)
  if(NOT TARGET tests_${group})
    add_custom_target(tests_${group})
  endif()
  add_dependencies(tests_${group} mpi_ranks mpi_mesh)
endforeach()

# Open MPI's vectorised sums of 8-bit integers saturate in place of wrapping around (ompi issue 8045): left out.
foreach(ranks RANGE 1 8)
  add_test(NAME mpi_exact_${ranks}_test COMMAND ${mpirun} --mca op ^avx -np ${ranks} $<TARGET_FILE:mpi_ranks> exact)
  add_test(NAME mpi_mesh_${ranks}_test COMMAND ${mpirun} -np ${ranks} $<TARGET_FILE:mpi_mesh> exact)
  set_tests_properties(mpi_exact_${ranks}_test mpi_mesh_${ranks}_test
    PROPERTIES LABELS "mpi;ranks" TIMEOUT 300 PROCESSORS 2)
endforeach()
add_test(NAME mpi_mesh_nccl_groups_test COMMAND ${mpirun} -np 8 $<TARGET_FILE:mpi_mesh> nccl_groups)
add_test(NAME mpi_mesh_funneled_test COMMAND ${mpirun} -np 4 $<TARGET_FILE:mpi_mesh> funneled)
foreach(ranks 2 4 8)
  add_test(NAME mpi_mesh_beside_${ranks}_test COMMAND ${mpirun} -np ${ranks} $<TARGET_FILE:mpi_mesh> beside)
  set_tests_properties(mpi_mesh_beside_${ranks}_test PROPERTIES LABELS "mpi;ranks" TIMEOUT 300 PROCESSORS 2)
endforeach()
# Over sockets, where the sender has to answer; in shared memory the receiver alone copies.
add_test(NAME mpi_mesh_moves_test COMMAND ${mpirun} --mca pml ob1 --mca btl self,tcp -np 2 $<TARGET_FILE:mpi_mesh>
  moves ${CMAKE_CURRENT_BINARY_DIR}/mpi_mesh_moves.answer)
set_tests_properties(mpi_mesh_funneled_test mpi_mesh_moves_test mpi_mesh_nccl_groups_test PROPERTIES LABELS "mpi;ranks" TIMEOUT 120)
# Needs 5 GB of memory.
add_test(NAME mpi_big_test COMMAND ${mpirun} -np 2 $<TARGET_FILE:mpi_ranks> big)
set_tests_properties(mpi_big_test PROPERTIES LABELS "mpi;slow" TIMEOUT 300)
