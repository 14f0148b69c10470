// For tests: NVML's functions on a fake GPU at "0000:1b:0...".
#pragma once

#include <string>

#include "core/energy.h"

namespace lockstep::core {

// NVML's functions take no context, so this is global to the test program: what the fake functions answer, and how
// often the library is open.
struct FakeGpu {
  int opened = 0;
  unsigned long long millijoules = 5'000'000;
  int energy_result = 0;
  unsigned int sm_mhz = 1980;
  unsigned long long throttle_reasons = 0x44;
};
inline FakeGpu& fake() {
  static FakeGpu gpu;
  return gpu;
}

inline NvmlCalls fake_calls() {
  return {.init =
              [] {
                ++fake().opened;
                return 0;
              },
          .shutdown =
              [] {
                --fake().opened;
                return 0;
              },
          .error_string = [](int result) { return result == 6 ? "Not Found" : "Unknown Error"; },
          .device_by_pci_id =
              [](const char* pci_id, void** device) {
                *device = &fake();
                return std::string(pci_id).starts_with("0000:1b:0") ? 0 : 6;
              },
          .total_energy =
              [](void* device, unsigned long long* millijoules) {
                *millijoules = static_cast<FakeGpu*>(device)->millijoules;
                return static_cast<FakeGpu*>(device)->energy_result;
              },
          .power =
              [](void* /*device*/, unsigned int* milliwatts) {
                *milliwatts = 351'500;
                return 0;
              },
          .clock =
              [](void* device, int domain, unsigned int* mhz) {
                *mhz = domain == 1 ? static_cast<FakeGpu*>(device)->sm_mhz : 2619;
                return domain == 1 || domain == 2 ? 0 : 2;
              },
          .temperature =
              [](void* /*device*/, int sensor, unsigned int* celsius) {
                *celsius = 64;
                return sensor == 0 ? 0 : 2;
              },
          .throttle_reasons =
              [](void* device, unsigned long long* bits) {
                *bits = static_cast<FakeGpu*>(device)->throttle_reasons;
                return 0;
              },
          .power_limit =
              [](void* /*device*/, unsigned int* milliwatts) {
                *milliwatts = 700'000;
                return 0;
              },
          .mig_mode =
              [](void* /*device*/, unsigned int* present, unsigned int* pending) {
                *present = 1;
                *pending = 0;
                return 0;
              },
          .driver_version =
              [](char* text, unsigned int size) {
                const std::string version = "580.82.07";
                if (size <= version.size()) return 7;
                version.copy(text, version.size());
                return 0;
              }};
}

}  // namespace lockstep::core
