// Coefficients that an AdamW step on the CPU computes once from its arguments, so that each parameter costs only one
// division. With the corrections c1 = 1 - beta1^step and c2 = 1 - beta2^step:
//   rate * (m / c1) / (sqrt(v / c2) + epsilon) = (rate / c1) * m / (sqrt(v) * (1 / sqrt(c2)) + epsilon).
#pragma once

namespace lockstep::kernels {

struct AdamWCoefficients {
  float factor;  // applied to gradients
  float beta1;
  float fresh1;  // 1 - beta1
  float beta2;
  float fresh2;      // 1 - beta2
  float rate;        // rate / c1
  float root_scale;  // 1 / sqrt(c2)
  float epsilon;
  float decay;  // rate * decay
};

struct AdamWArrays {
  float* w;
  float* m;
  float* v;
};

}  // namespace lockstep::kernels
