#include "bench/sweep/programs.h"

#include <array>
#include <string>

#include "core/error.h"

namespace lockstep::sweep {
namespace {

using collectives::Kind;

struct Program {
  std::string_view name;  // nccl-tests'
  Kind kind;
};

constexpr std::array kPrograms{
    Program{"all_reduce_perf", Kind::all_reduce},  Program{"reduce_scatter_perf", Kind::reduce_scatter},
    Program{"all_gather_perf", Kind::all_gather},  Program{"broadcast_perf", Kind::broadcast},
    Program{"reduce_perf", Kind::reduce},          Program{"alltoall_perf", Kind::all_to_all},
    Program{"alltoallv_perf", Kind::all_to_all_v}, Program{"sendrecv_perf", Kind::send_recv},
    Program{"gather_perf", Kind::gather},          Program{"scatter_perf", Kind::scatter},
    Program{"hypercube_perf", Kind::hypercube},
};

}  // namespace

Kind kind_of_program(std::string_view program) {
  std::string allowed;
  for (const Program& candidate : kPrograms) {
    if (candidate.name == program) return candidate.kind;
    allowed += " " + std::string(candidate.name);
  }
  throw core::usage_error("'" + std::string(program) + "' is no sweep; allowed:" + allowed);
}

std::string_view program_of_kind(Kind kind) {
  for (const Program& candidate : kPrograms) {
    if (candidate.kind == kind) return candidate.name;
  }
  LOCKSTEP_CHECK(false, "a collective without a program");
  return {};
}

}  // namespace lockstep::sweep
