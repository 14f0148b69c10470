// Readers of flags that programs which train share.
#pragma once

#include <initializer_list>
#include <string>

#include "bench/sweep/flag_values.h"
#include "collectives/backends/mesh.h"
#include "collectives/transports/mpi_transport.h"
#include "collectives/transports/paced_link.h"
#include "core/dtype.h"
#include "parallel/compress/compress.h"
#include "trainer/model/gpt.h"

namespace lockstep::mini_train {

core::DType dtype_of(const sweep::FlagValue& value);  // f32, bf16, f16
trainer::GptConfig model_of(const sweep::FlagValue& value);
transports::LinkSpec link_of(const sweep::FlagValue& value);
parallel::Compression compression_of(const sweep::FlagValue& value);
backends::DeviceChoice device_of(const sweep::FlagValue& value);  // cpu, cuda, cuda:1
std::string transport_of(const sweep::FlagValue& value, std::initializer_list<const char*> allowed);
transports::MpiThreads mpi_threads_of(const sweep::FlagValue& value);

}  // namespace lockstep::mini_train
