// Runs a body over [0, n) on several threads, in pieces handed out as threads become free; the first exception of any
// piece is thrown again by the caller.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace outcore {

template <typename Body>  // body(begin, end, thread)
void parallel_for(std::int64_t n, std::int64_t piece, int threads, const Body& body) {
    if (n <= 0) return;
    piece = std::max<std::int64_t>(piece, 1);
    const std::int64_t pieces = (n + piece - 1) / piece;
    const int workers = static_cast<int>(std::min<std::int64_t>(std::max(threads, 1), pieces));
    std::atomic<std::int64_t> next{0};
    std::exception_ptr failure;
    std::mutex failure_lock;
    const auto work = [&](int thread) {
        try {
            for (std::int64_t k = next.fetch_add(1); k < pieces; k = next.fetch_add(1)) {
                body(k * piece, std::min(n, (k + 1) * piece), thread);
            }
        } catch (...) {
            const std::scoped_lock lock(failure_lock);
            if (!failure) failure = std::current_exception();
            next.store(pieces);
        }
    };
    std::vector<std::thread> pool;
    pool.reserve(static_cast<std::size_t>(workers - 1));
    try {
        for (int thread = 1; thread < workers; ++thread) pool.emplace_back(work, thread);
    } catch (...) {  // no more threads on this host: those that started do the work
    }
    work(0);
    for (std::thread& thread : pool) thread.join();
    if (failure) std::rethrow_exception(failure);
}

}  // namespace outcore
