// Allocations that fail: the program's operator new throws at the allocation that a test chose, in any thread.
// Include it in one file of a test; sanitizers still see the memory, since it comes from malloc.
#pragma once

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <new>
#include <system_error>

namespace failing_memory {

inline constexpr long never = std::numeric_limits<long>::max();
inline std::atomic<long> left{never};  // allocations until the one that fails

// Runs `body` repeatedly and fails one allocation in each run, the next one each time, until a run has no allocation
// left to fail; returns the number of runs that reported the failure. `body` must clean up after itself.
template <class Body>
long each_once(const Body& body) {
    long thrown = 0;
    for (long nth = 0;; ++nth) {
        left = nth;
        try {
            body();
        } catch (const std::bad_alloc&) {
            ++thrown;
        } catch (const std::system_error& error) {  // a thread that could not be started
            if (error.code().value() != EAGAIN) throw;
            ++thrown;
        }
        if (left.exchange(never) >= 0) return thrown;
    }
}

}  // namespace failing_memory

[[gnu::noinline]] void* operator new(std::size_t bytes) {
    using failing_memory::left;
    if (left.load(std::memory_order_relaxed) != failing_memory::never && left.fetch_sub(1) == 0) throw std::bad_alloc();
    if (void* memory = std::malloc(bytes > 0 ? bytes : 1)) return memory;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
