// Pool of threads that outlive a call: the caller and helpers share a loop and take its chunks off one counter.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "first_error.hpp"

namespace outcore {

class TaskPool {
public:
    static TaskPool& shared();

    // Calls body(begin, end) over [0, count) in chunks, on `threads` threads with the caller among them; fewer where
    // the host gives no more. Rethrows the first exception of `body` once no thread is inside it; chunks not yet begun
    // are then left out. Several callers may run at once: the pool grows so that each has its threads.
    void run(std::size_t count, std::size_t chunk, unsigned threads,
             const std::function<void(std::size_t, std::size_t)>& body);

    TaskPool() = default;
    TaskPool(const TaskPool&) = delete;
    TaskPool& operator=(const TaskPool&) = delete;
    ~TaskPool();

private:
    struct Job {
        const std::function<void(std::size_t, std::size_t)>* body;
        std::size_t count;
        std::size_t chunk;
        std::size_t chunks;
        std::atomic<std::size_t> next{0};
        unsigned active = 0;  // helpers inside `body`; guarded by the pool's mutex
        FirstError error{};

        void work() noexcept {
            const bool sound = error.attempt([this] {
                for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < chunks;)
                    (*body)(i * chunk, i + 1 < chunks ? (i + 1) * chunk : count);
            });
            if (!sound) next.store(chunks, std::memory_order_relaxed);
        }
    };

    void help();

    std::mutex mutex_;
    std::condition_variable job_there_;
    std::condition_variable helper_left_;
    std::deque<Job*> places_;  // one entry for each helper still wanted
    unsigned wanted_ = 0;      // helpers that the running calls asked for
    bool closing_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace outcore
