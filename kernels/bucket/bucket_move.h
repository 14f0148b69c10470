// How elements go from one array to another on the CPU, between bucket.cpp's parts.
#pragma once

namespace lockstep::kernels {

struct Move {
  float scale;
  bool stream;  // past the caches
};

}  // namespace lockstep::kernels
