// Sleeping on an address that several ranks, threads or processes, can see (Linux futex).
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::core {

// Sleeps while *word == expected, until woken, or for at most `longest`. May return early.
void futex_wait(const void* word, std::uint32_t expected, std::chrono::nanoseconds longest);
void futex_wake_all(const void* word);

}  // namespace lockstep::core
