// Allocations that fail: the program's operator new throws at the one that a test chose, in whichever thread it is.
// To be included once by a test; sanitizers see the memory all the same, since it is malloc's.
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

// Fails each allocation of `body` in turn, one a run, until a run has none that is left to fail; returns how many runs
// said so. `body` is to clean up after itself.
template <class Body>
long each_once(const Body& body) {
    long thrown = 0;
    for (long nth = 0;; ++nth) {
        left = nth;
        try {
            body();
        } catch (const std::bad_alloc&) {
            ++thrown;
        } catch (const std::system_error& error) {  // a thread that could not be made
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
