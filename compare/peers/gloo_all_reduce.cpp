// Times Gloo's all-reduce of floats over TCP: gloo_all_reduce ALGORITHM RANK RANKS FOLDER INTERFACE SIZES CALLS. One
// process per rank; they find each other by files in FOLDER, which must be empty. Gloo's algorithms work in place.
// Prints a row of compare/peers/peers.h per size.
#include <gloo/algorithm.h>
#include <gloo/allreduce_bcube.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstring>
#include <memory>

#include "compare/peers/peers.h"

using namespace lockstep::peers;
using Context = std::shared_ptr<gloo::rendezvous::Context>;

static std::unique_ptr<gloo::Algorithm> make(const std::string& name, const Context& context, float* data, int count) {
  const std::vector<float*> buffers{data};
  if (name == "ring") return std::make_unique<gloo::AllreduceRing<float>>(context, buffers, count);
  if (name == "ring_chunked") return std::make_unique<gloo::AllreduceRingChunked<float>>(context, buffers, count);
  if (name == "bcube") return std::make_unique<gloo::AllreduceBcube<float>>(context, buffers, count);
  if (name == "halving_doubling") {
    return std::make_unique<gloo::AllreduceHalvingDoubling<float>>(context, buffers, count);
  }
  std::fprintf(stderr, "error: unknown algorithm %s: ring ring_chunked halving_doubling bcube\n", name.c_str());
  std::exit(6);
}

static Context connect(int rank, int ranks, const char* folder, const char* interface) {
  gloo::transport::tcp::attr attr;
  attr.iface = interface;
  auto device = gloo::transport::tcp::CreateDevice(attr);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, ranks);
  gloo::rendezvous::FileStore store(folder);
  context->connectFullMesh(store, device);
  return context;
}

int main(int argc, char** argv) {
  if (argc != 8) {
    std::fprintf(stderr, "usage: gloo_all_reduce ALGORITHM RANK RANKS FOLDER INTERFACE SIZES CALLS\n");
    return 6;
  }
  const int rank = std::atoi(argv[2]);
  const int ranks = std::atoi(argv[3]);
  const Context context = connect(rank, ranks, argv[4], argv[5]);
  gloo::BarrierAllToOne barrier(context);
  for (std::size_t bytes : parse_sizes(argv[6])) {
    Slots slots(bytes);
    const int count = static_cast<int>(slots.elems());
    std::vector<std::unique_ptr<gloo::Algorithm>> calls_of_a_batch;
    for (int i = 0; i < slots.number(); ++i) {
      calls_of_a_batch.push_back(make(argv[1], context, slots.output(i), count));
    }
    const Peer peer{[&] { barrier.run(); },
                    [&](int i) {
                      // Not timed separately: the copy makes it out of place, like the other peers.
                      std::memcpy(slots.output(i), slots.input(i), slots.elems() * sizeof(float));
                      calls_of_a_batch[static_cast<std::size_t>(i)]->run();
                    },
                    [&](std::vector<double>& times) {
                      gloo::AllreduceRing<double>(context, {times.data()}, static_cast<int>(times.size()),
                                                  gloo::ReductionFunction<double>::max)
                          .run();
                    }};
    const int calls = calls_for(bytes, std::atoi(argv[7]));
    const std::vector<double> times = time_calls(slots, peer, rank, ranks, calls, calls / 5 + 2);
    if (rank == 0) print_row(std::string("gloo ") + argv[1], ranks, bytes, times);
  }
  return 0;
}
