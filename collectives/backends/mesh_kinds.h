// What the two kinds of mesh share: see mesh.h.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "collectives/backends/mesh.h"

namespace lockstep::backends {

using MeshBody = std::function<void(MeshRank&)>;
void run_local_mesh(const MeshOptions& options, std::span<const Channel> channels, const MeshBody& body);
void run_mpi_mesh(const MeshOptions& options, std::span<const Channel> channels, const MeshBody& body);

bool is_member(const Channel& channel, int rank);
int index_in(const Channel& channel, int rank);  // of a member

// The plan of an algorithm as a user writes it, "auto" among them. `transport` as the tuning table names it.
plan::Plan mesh_plan(const MeshOptions& options, std::string_view transport, const collectives::Operation& operation,
                     int num_members, std::string_view algorithm);

}  // namespace lockstep::backends
