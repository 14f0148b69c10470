// MPI's own collectives, and its counterparts of our dtypes and operations.
#include "collectives/libraries/mpi_library.h"

#include <algorithm>
#include <array>
#include <climits>
#include <cstring>
#include <utility>
#include <vector>

#include <mpi.h>

#include "collectives/transports/mpi_calls.h"
#include "collectives/transports/mpi_transport.h"
#include "collectives/verify.h"
#include "core/dtype.h"
#include "core/error.h"
#include "kernels/reduce/reduce.h"

namespace lockstep::libraries {

// f16, bf16 and fp8 are sent as unsigned integers of their size.
MPI_Datatype mpi_type(core::DType dtype);

// MPI's operation, or one of ours if MPI does not know the dtype.
class MpiOp {
 public:
  MpiOp(core::DType dtype, core::ReduceOp op);
  ~MpiOp();
  MpiOp(const MpiOp&) = delete;
  MpiOp& operator=(const MpiOp&) = delete;
  MPI_Op get() const { return op_; }

 private:
  MPI_Op op_ = MPI_OP_NULL;
  bool ours_ = false;
};

namespace {

using collectives::Kind;
using collectives::Operation;
using core::DType;
using core::ReduceOp;

MPI_Op builtin(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return MPI_SUM;
    case ReduceOp::prod:
      return MPI_PROD;
    case ReduceOp::max:
      return MPI_MAX;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::avg:
      break;
  }
  return MPI_OP_NULL;
}

bool is_known_to_mpi(DType dtype) {
  return !core::is_floating(dtype) || dtype == DType::f32 || dtype == DType::f64;
}

// MPI_User_function: inout[i] = in[i] (op) inout[i].
template <DType dtype, ReduceOp op>
void combine(void* in, void* inout, int* count, MPI_Datatype* /*type*/) {
  const std::array<void*, 1> destinations{inout};
  const std::array<const void*, 2> sources{in, inout};
  kernels::reduce({.dtype = dtype, .op = op, .destinations = destinations, .sources = sources, .count = *count});
}

template <DType dtype>
MPI_User_function* combiner(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return combine<dtype, ReduceOp::sum>;
    case ReduceOp::prod:
      return combine<dtype, ReduceOp::prod>;
    case ReduceOp::max:
      return combine<dtype, ReduceOp::max>;
    case ReduceOp::min:
      return combine<dtype, ReduceOp::min>;
    case ReduceOp::avg:
      break;
  }
  return nullptr;
}

MPI_User_function* combiner(DType dtype, ReduceOp op) {
  switch (dtype) {
    case DType::f16:
      return combiner<DType::f16>(op);
    case DType::bf16:
      return combiner<DType::bf16>(op);
    case DType::f8e4m3:
      return combiner<DType::f8e4m3>(op);
    case DType::f8e5m2:
      return combiner<DType::f8e5m2>(op);
    default:
      return nullptr;
  }
}

}  // namespace

MPI_Datatype mpi_type(DType dtype) {
  switch (dtype) {
    case DType::i8:
      return MPI_INT8_T;
    case DType::u8:
    case DType::f8e4m3:
    case DType::f8e5m2:
      return MPI_UINT8_T;
    case DType::f16:
    case DType::bf16:
      return MPI_UINT16_T;
    case DType::i32:
      return MPI_INT32_T;
    case DType::u32:
      return MPI_UINT32_T;
    case DType::i64:
      return MPI_INT64_T;
    case DType::u64:
      return MPI_UINT64_T;
    case DType::f32:
      return MPI_FLOAT;
    case DType::f64:
      return MPI_DOUBLE;
  }
  return MPI_DATATYPE_NULL;
}

MpiOp::MpiOp(DType dtype, ReduceOp op) : op_(builtin(op)), ours_(!is_known_to_mpi(dtype)) {
  if (!ours_) return;
  MPI_User_function* function = combiner(dtype, op);
  LOCKSTEP_CHECK(function != nullptr, "no such operation");
  constexpr int kCommutes = 1;
  MPI_Op_create(function, kCommutes, &op_);
}

MpiOp::~MpiOp() {
  if (ours_) MPI_Op_free(&op_);
}

namespace {

// Arguments of a call that do not change between runs.
struct MpiCall {
  MPI_Comm comm;
  int rank;
  int num_ranks;
  int root;
  int count;  // elements per block
  std::size_t block_bytes;
  bool in_place;
  MPI_Datatype type;
  MPI_Op op;
  // for all_to_all_v
  std::vector<int> send_counts;
  std::vector<int> send_offsets;
  std::vector<int> recv_counts;
  std::vector<int> recv_offsets;

  bool is_root() const { return rank == root; }
};

// MPI's in-place convention is nccl-tests' in all of these functions.
int all_reduce(const MpiCall& c, const void* input, void* output) {
  return MPI_Allreduce(c.in_place ? MPI_IN_PLACE : input, output, c.count, c.type, c.op, c.comm);
}

int reduce_scatter(const MpiCall& c, const void* input, void* output) {
  return MPI_Reduce_scatter_block(input, output, c.count, c.type, c.op, c.comm);
}

int all_gather(const MpiCall& c, const void* input, void* output) {
  return MPI_Allgather(c.in_place ? MPI_IN_PLACE : input, c.count, c.type, output, c.count, c.type, c.comm);
}

int broadcast(const MpiCall& c, const void* input, void* output) {
  if (c.is_root() && !c.in_place) std::memcpy(output, input, c.block_bytes);  // MPI has one buffer only
  return MPI_Bcast(output, c.count, c.type, c.root, c.comm);
}

int reduce(const MpiCall& c, const void* input, void* output) {
  return MPI_Reduce(c.in_place && c.is_root() ? MPI_IN_PLACE : input, output, c.count, c.type, c.op, c.root, c.comm);
}

int all_to_all(const MpiCall& c, const void* input, void* output) {
  return MPI_Alltoall(c.in_place ? MPI_IN_PLACE : input, c.count, c.type, output, c.count, c.type, c.comm);
}

int all_to_all_v(const MpiCall& c, const void* input, void* output) {
  return MPI_Alltoallv(input, c.send_counts.data(), c.send_offsets.data(), c.type, output, c.recv_counts.data(),
                       c.recv_offsets.data(), c.type, c.comm);
}

int gather(const MpiCall& c, const void* input, void* output) {
  const void* from = c.in_place && c.is_root() ? MPI_IN_PLACE : input;
  return MPI_Gather(from, c.count, c.type, output, c.count, c.type, c.root, c.comm);
}

int scatter(const MpiCall& c, const void* input, void* output) {
  void* to = c.in_place && c.is_root() ? MPI_IN_PLACE : output;
  return MPI_Scatter(input, c.count, c.type, to, c.count, c.type, c.root, c.comm);
}

int send_recv(const MpiCall& c, const void* input, void* output) {
  const int next = (c.rank + 1) % c.num_ranks;
  const int previous = (c.rank + c.num_ranks - 1) % c.num_ranks;
  if (c.in_place) {
    return MPI_Sendrecv_replace(output, c.count, c.type, next, 0, previous, 0, c.comm, MPI_STATUS_IGNORE);
  }
  return MPI_Sendrecv(input, c.count, c.type, next, 0, output, c.count, c.type, previous, 0, c.comm, MPI_STATUS_IGNORE);
}

struct MpiFunction {
  Kind kind;
  const char* name;
  int (*function)(const MpiCall&, const void* input, void* output);
};
constexpr std::array kCalls{
    MpiFunction{Kind::all_reduce, "MPI_Allreduce", all_reduce},
    MpiFunction{Kind::reduce_scatter, "MPI_Reduce_scatter_block", reduce_scatter},
    MpiFunction{Kind::all_gather, "MPI_Allgather", all_gather},
    MpiFunction{Kind::broadcast, "MPI_Bcast", broadcast},
    MpiFunction{Kind::reduce, "MPI_Reduce", reduce},
    MpiFunction{Kind::all_to_all, "MPI_Alltoall", all_to_all},
    MpiFunction{Kind::all_to_all_v, "MPI_Alltoallv", all_to_all_v},
    MpiFunction{Kind::gather, "MPI_Gather", gather},
    MpiFunction{Kind::scatter, "MPI_Scatter", scatter},
    MpiFunction{Kind::send_recv, "MPI_Sendrecv", send_recv},
};

const MpiFunction& call_of(Kind kind) {
  const auto* const row =
      std::find_if(kCalls.begin(), kCalls.end(), [&](const MpiFunction& r) { return r.kind == kind; });
  LOCKSTEP_CHECK(row != kCalls.end(), "a kind that mpi_refusal() refuses");
  return *row;
}

class MpiCollective final : public collectives::Collective {
 public:
  MpiCollective(const Operation& operation, transports::MpiWorld& world, std::shared_ptr<void> communicator)
      : function_(call_of(operation.kind)),
        op_(operation.dtype, operation.op),
        communicator_(std::move(communicator)),
        call_(make_call(operation, world)),
        watchdog_(world.watchdog()) {
    // MPI's in-place reduce-scatter leaves its result at the start of the input; ours leaves it in block `rank`.
    if (operation.kind == Kind::reduce_scatter && operation.in_place) {
      input_copy_.resize(static_cast<std::size_t>(input_bytes(operation, call_.num_ranks, call_.rank)));
    }
  }

  void run(const void* input, void* output) override {
    if (!input_copy_.empty()) {
      std::memcpy(input_copy_.data(), input, input_copy_.size());
      input = input_copy_.data();
    }
    watchdog_.enter();
    const int code = function_.function(call_, input, output);
    watchdog_.leave();
    transports::check_mpi(code, [this] {
      return std::string(function_.name) + ": rank " + std::to_string(call_.rank) + ", " +
             std::to_string(call_.block_bytes) + " bytes per block";
    });
  }

 private:
  MpiCall make_call(const Operation& operation, const transports::MpiWorld& world) const {
    const int rank = world.placement().rank;
    const int num_ranks = world.placement().num_ranks;
    MpiCall call{};
    call.comm = *static_cast<MPI_Comm*>(communicator_ ? communicator_.get() : world.native_communicator());
    call.rank = rank;
    call.num_ranks = num_ranks;
    call.root = operation.root;
    call.count = static_cast<int>(operation.count);
    call.block_bytes = static_cast<std::size_t>(operation.count) * core::size_of(operation.dtype);
    call.in_place = operation.in_place;
    call.type = mpi_type(operation.dtype);
    call.op = op_.get();
    if (!operation.matrix) return call;
    for (int peer = 0; peer < num_ranks; ++peer) {
      call.send_counts.push_back(static_cast<int>(operation.matrix->at(rank, peer)));
      call.recv_counts.push_back(static_cast<int>(operation.matrix->at(peer, rank)));
    }
    for (std::int64_t offset : input_offsets(operation, num_ranks, rank)) {
      call.send_offsets.push_back(static_cast<int>(offset));
    }
    for (std::int64_t offset : output_offsets(operation, num_ranks, rank)) {
      call.recv_offsets.push_back(static_cast<int>(offset));
    }
    return call;
  }

  MpiFunction function_;
  MpiOp op_;
  const std::shared_ptr<void> communicator_;  // the chosen algorithm's; empty: the world's
  MpiCall call_;
  transports::Watchdog& watchdog_;
  std::vector<std::byte> input_copy_;
};

}  // namespace

std::optional<std::string> mpi_refusal(const Operation& operation, int num_ranks) {
  if (operation.kind == Kind::hypercube) return "MPI has no hypercube collective; all_gather gives the same result";
  if (has_op(operation.kind) && operation.op == core::ReduceOp::avg) return "MPI has no operation avg";
  if (operation.kind == Kind::all_to_all_v && operation.in_place) {
    return "all_to_all_v in place: blocks differ in size between input and output";
  }
  std::int64_t most = operation.count;
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (operation.kind != Kind::all_to_all_v) break;
    most = std::max(
        {most, input_offsets(operation, num_ranks, rank).back(), output_offsets(operation, num_ranks, rank).back()});
  }
  if (most > INT_MAX) {
    return std::to_string(most) + " elements: counts of MPI are int, at most " + std::to_string(INT_MAX);
  }
  return std::nullopt;
}

std::unique_ptr<collectives::Collective> make_mpi_collective(const Operation& operation, transports::MpiWorld& world,
                                                             std::string_view asked) {
  const int num_ranks = world.placement().num_ranks;
  if (const auto refusal = mpi_refusal(operation, num_ranks)) throw core::usage_error(*refusal);
  std::shared_ptr<void> communicator;
  if (asked != "library") {
    const MpiAlgorithm algorithm = parse_mpi_choice(asked, operation.kind, num_ranks);
    world.watchdog().enter();  // ranks meet here
    communicator = communicator_with(algorithm, operation.kind, world.native_communicator());
    world.watchdog().leave();
  }
  return std::make_unique<MpiCollective>(operation, world, std::move(communicator));
}

}  // namespace lockstep::libraries
