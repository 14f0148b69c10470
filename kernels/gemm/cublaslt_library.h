// cuBLASLt is opened at run time, when the first product on a GPU asks for it. It takes 50 to 80 ms to load (25,000
// pages of relocations), which every start of every program would pay, also of those that use no GPU; and programs that
// were built with CUDA run where it is not installed.
#pragma once

#include <span>

namespace lockstep::kernels {

// The first of these that can be opened, as dlopen() has it; it stays open. Throws Error(cuda) with the reason for each
// if none can.
void* open_cublaslt(std::span<const char* const> places);

}  // namespace lockstep::kernels
