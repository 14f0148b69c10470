// Times MPI_Allreduce of floats: mpi_all_reduce LABEL SIZES CALLS. The algorithm is chosen from outside, by the MPI
// library's own settings. Prints a row of compare/peers/peers.h per size.
#include <mpi.h>

#include "compare/peers/peers.h"

using namespace lockstep::peers;

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  if (argc != 4) {
    std::fprintf(stderr, "usage: mpi_all_reduce LABEL SIZES CALLS\n");
    MPI_Abort(MPI_COMM_WORLD, 6);
  }
  int rank = 0;
  int ranks = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (std::size_t bytes : parse_sizes(argv[2])) {
    Slots slots(bytes);
    const int count = static_cast<int>(slots.elems());
    const Peer peer{
        [] { MPI_Barrier(MPI_COMM_WORLD); },
        [&](int i) { MPI_Allreduce(slots.input(i), slots.output(i), count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); },
        [](std::vector<double>& times) {
          MPI_Allreduce(MPI_IN_PLACE, times.data(), static_cast<int>(times.size()), MPI_DOUBLE, MPI_MAX,
                        MPI_COMM_WORLD);
        }};
    const int calls = calls_for(bytes, std::atoi(argv[3]));
    const std::vector<double> times = time_calls(slots, peer, rank, ranks, calls, calls / 5 + 2);
    if (rank == 0) print_row(argv[1], ranks, bytes, times);
  }
  MPI_Finalize();
  return 0;
}
