// Threads that outlive a call: a loop is shared among the caller and helpers, who take chunks off one counter.
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

namespace outcore {

class TaskPool {
public:
    static TaskPool& shared();

    // Calls body(begin, end) over [0, count) in chunks, on `threads` threads with the caller among them. `body` must
    // not throw. Several callers may run at once: the pool grows so that each has its threads.
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
        std::atomic<std::size_t> next{0};
        unsigned active = 0;  // helpers inside `body`, under the pool's mutex

        void work() {
            for (;;) {
                const std::size_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
                if (begin >= count) return;
                (*body)(begin, begin + chunk < count ? begin + chunk : count);
            }
        }
    };

    void help();

    std::mutex mutex_;
    std::condition_variable job_there_;
    std::condition_variable helper_left_;
    std::deque<Job*> places_;  // one entry for each helper that is still wanted
    unsigned wanted_ = 0;      // threads asked for by the calls that run now
    bool closing_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace outcore
