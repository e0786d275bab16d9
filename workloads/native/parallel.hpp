// Runs a body over [0, n) on several threads, in pieces handed out as threads become free; the first exception of any
// piece is thrown again by the caller.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "first_error.hpp"

namespace outcore {

template <typename Body>  // body(begin, end, thread)
void parallel_for(std::int64_t n, std::int64_t piece, int threads, const Body& body) {
    if (n <= 0) return;
    piece = std::max<std::int64_t>(piece, 1);
    const std::int64_t pieces = (n + piece - 1) / piece;
    const int workers = static_cast<int>(std::min<std::int64_t>(std::max(threads, 1), pieces));
    std::atomic<std::int64_t> next{0};
    FirstError error;
    const auto work = [&](int thread) {
        const bool sound = error.attempt([&] {
            for (std::int64_t k = next.fetch_add(1); k < pieces; k = next.fetch_add(1)) {
                body(k * piece, std::min(n, (k + 1) * piece), thread);
            }
        });
        if (!sound) next.store(pieces);
    };
    std::vector<std::thread> others;
    start_threads(others, static_cast<std::size_t>(workers - 1), [&](std::size_t i) { work(static_cast<int>(i) + 1); });
    work(0);
    for (std::thread& thread : others) thread.join();
    error.rethrow();
}

}  // namespace outcore
