// A kernel of your own, counted without a GPU: docs/gpu.md, "Kernels of your own".
//   nvcc -ptx -arch=sm_90 -O3 scale.cu        writes scale.ptx, which is here so that the example needs no nvcc

// y = factor x; each thread has four elements in one access.
extern "C" __global__ void scale(float4* y, const float4* x, float factor, int accesses) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= accesses) return;
  const float4 v = x[i];
  y[i] = make_float4(factor * v.x, factor * v.y, factor * v.z, factor * v.w);
}
