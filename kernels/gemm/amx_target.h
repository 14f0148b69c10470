// Instructions that functions for AMX are compiled for, one by one: the build's baseline lacks them.
#pragma once

#define LOCKSTEP_AMX __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,amx-tile,amx-bf16,prfchw")))
