// How elements are copied from one array to another on the CPU, shared by bucket.cpp's parts.
#pragma once

namespace lockstep::kernels {

struct Move {
  float scale;
  bool stream;  // use non-temporal stores
};

}  // namespace lockstep::kernels
