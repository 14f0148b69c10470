// Open MPI's own algorithms, as its control variables (MPI_T, MPI 3.0 and newer, chapter "Tool Support") list them.
// Its component coll/tuned reads coll_tuned_<collective>_algorithm when a communicator is made, so each choice is a
// communicator of its own, made while the variable is set.
#include <array>
#include <cstdlib>

#include <mpi.h>

#include "collectives/libraries/mpi_library.h"
#include "collectives/transports/mpi_calls.h"
#include "core/error.h"

namespace lockstep::libraries {
namespace {

using collectives::Kind;

constexpr std::string_view kPrefix = "library:algorithm=";
constexpr const char* kDynamic = "coll_tuned_use_dynamic_rules";

// The interface for tools, open for the lifetime of this object; openings are counted by MPI.
class Tools {
 public:
  Tools() {
    int provided = 0;
    opened_ = MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS;
  }
  ~Tools() {
    if (opened_) MPI_T_finalize();
  }
  Tools(const Tools&) = delete;
  Tools& operator=(const Tools&) = delete;

 private:
  bool opened_ = false;
};

// A control variable that is one integer, perhaps with names for its values.
class Variable {
 public:
  explicit Variable(const std::string& name) {
    if (MPI_T_cvar_get_index(name.c_str(), &index_) != MPI_SUCCESS) return;
    int count = 0;
    exists_ = MPI_T_cvar_handle_alloc(index_, nullptr, &handle_, &count) == MPI_SUCCESS && count == 1;
  }
  ~Variable() {
    if (exists_) MPI_T_cvar_handle_free(&handle_);
  }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

  bool exists() const { return exists_; }
  int value() const {
    int value = 0;
    return MPI_T_cvar_read(handle_, &value) == MPI_SUCCESS ? value : 0;
  }
  bool set(int value) const { return MPI_T_cvar_write(handle_, &value) == MPI_SUCCESS; }

  std::vector<MpiAlgorithm> named_values() const {
    int verbosity = 0, bind = 0, scope = 0, number = 0, name_length = 0, text_length = 0;
    MPI_Datatype type = MPI_DATATYPE_NULL;
    MPI_T_enum names = MPI_T_ENUM_NULL;
    const int code = MPI_T_cvar_get_info(index_, nullptr, &name_length, &verbosity, &type, &names, nullptr,
                                         &text_length, &bind, &scope);
    if (code != MPI_SUCCESS || names == MPI_T_ENUM_NULL) return {};
    if (MPI_T_enum_get_info(names, &number, nullptr, &name_length) != MPI_SUCCESS) return {};
    std::vector<MpiAlgorithm> values;
    for (int i = 0; i < number; ++i) {
      std::array<char, 128> text{};
      int length = static_cast<int>(text.size());
      int value = 0;
      if (MPI_T_enum_get_item(names, i, &value, text.data(), &length) != MPI_SUCCESS) return {};
      values.push_back({value, text.data()});
    }
    return values;
  }

 private:
  int index_ = 0;
  MPI_T_cvar_handle handle_ = MPI_T_CVAR_HANDLE_NULL;
  bool exists_ = false;
};

std::string variable_of(Kind kind) {
  return "coll_tuned_" + std::string(openmpi_name(kind)) + "_algorithm";
}

std::string names_of(const std::vector<MpiAlgorithm>& algorithms) {
  std::string names;
  for (const MpiAlgorithm& algorithm : algorithms) names += (names.empty() ? "" : " ") + algorithm.name;
  return names;
}

}  // namespace

std::string_view openmpi_name(Kind kind) {
  switch (kind) {
    case Kind::all_reduce:
      return "allreduce";
    case Kind::reduce_scatter:
      return "reduce_scatter_block";  // the call of make_mpi_collective()
    case Kind::all_gather:
      return "allgather";
    case Kind::broadcast:
      return "bcast";
    case Kind::reduce:
      return "reduce";
    case Kind::all_to_all:
      return "alltoall";
    case Kind::all_to_all_v:
      return "alltoallv";
    case Kind::gather:
      return "gather";
    case Kind::scatter:
      return "scatter";
    case Kind::send_recv:
    case Kind::hypercube:
      break;
  }
  return "";
}

std::vector<MpiAlgorithm> mpi_algorithms(Kind kind, int num_ranks) {
  const Tools tools;
  const Variable variable(variable_of(kind));
  if (openmpi_name(kind).empty() || !variable.exists()) return {};
  std::vector<MpiAlgorithm> algorithms;
  for (MpiAlgorithm& algorithm : variable.named_values()) {
    if (algorithm.id == 0 || (algorithm.name == "two_proc" && num_ranks != 2)) continue;  // 0: no choice
    algorithms.push_back(std::move(algorithm));
  }
  return algorithms;
}

std::string mpi_choice_text(const MpiAlgorithm& algorithm) {
  return std::string(kPrefix) + algorithm.name;
}

void let_mpi_algorithms_be_chosen() {
  constexpr int kKeepsTheUsers = 0;
  // NOLINTNEXTLINE(concurrency-mt-unsafe): called before MPI and any thread is started
  setenv("OMPI_MCA_coll_tuned_use_dynamic_rules", "1", kKeepsTheUsers);
}

MpiAlgorithm parse_mpi_choice(std::string_view asked, Kind kind, int num_ranks) {
  const std::vector<MpiAlgorithm> allowed = mpi_algorithms(kind, num_ranks);
  const std::string where = "--algo " + std::string(asked) + ": ";
  if (allowed.empty()) {
    throw core::usage_error(where + "this MPI library offers no choice for " + std::string(collectives::name_of(kind)) +
                            " (Open MPI's coll/tuned does); allowed: library");
  }
  for (const MpiAlgorithm& algorithm : allowed) {
    if (asked != mpi_choice_text(algorithm)) continue;
    const Tools tools;
    const Variable dynamic(kDynamic);
    if (dynamic.exists() && dynamic.value() != 0) return algorithm;
    throw core::usage_error(where + "Open MPI ignores the choice of an algorithm; allowed: with mpirun --mca " +
                            kDynamic + " 1");
  }
  throw core::usage_error(where + "not an algorithm of this MPI library's " + std::string(collectives::name_of(kind)) +
                          " at " + std::to_string(num_ranks) +
                          " ranks; allowed: library, or library:algorithm= with one of " + names_of(allowed));
}

std::shared_ptr<void> communicator_with(const MpiAlgorithm& algorithm, Kind kind, void* world) {
  const Tools tools;
  const Variable variable(variable_of(kind));
  LOCKSTEP_CHECK(variable.exists(), "parse_mpi_choice() has found the variable");
  const int before = variable.value();
  if (!variable.set(algorithm.id)) {
    throw core::Error(core::Failure::usage,
                      "MPI_T_cvar_write: " + variable_of(kind) + " cannot be set to " + std::to_string(algorithm.id));
  }
  MPI_Comm chosen = MPI_COMM_NULL;
  const int code = MPI_Comm_dup(*static_cast<MPI_Comm*>(world), &chosen);
  variable.set(before);
  transports::check_mpi(code, [] { return std::string("MPI_Comm_dup"); });
  MPI_Comm_set_errhandler(chosen, MPI_ERRORS_RETURN);
  return transports::shared_comm(chosen);
}

}  // namespace lockstep::libraries
