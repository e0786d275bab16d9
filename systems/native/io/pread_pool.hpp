// Reads and writes by a pool of threads that call pread and pwrite, for hosts where io_uring is missing or forbidden.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/types.hpp"
#include "io/backend.hpp"

namespace outcore {

class PreadPool final : public IoBackend {
public:
    // Starts fewer threads where the host gives no more. Throws std::system_error where it gives none.
    PreadPool(u32 threads, u32 depth, int fd);
    PreadPool(const PreadPool&) = delete;
    PreadPool& operator=(const PreadPool&) = delete;
    ~PreadPool() override { abandon(); }

    void queue(const Io& io) override { staged_.push_back(io); }
    size_t wait(std::span<Completion> out, u32 at_least) override;
    void abandon() noexcept override;

private:
    void work() noexcept;

    int fd_;
    // None of these grows beyond `depth`, which is reserved from the start: threads allocate nothing.
    std::vector<Io> staged_;   // queued, not yet given to the threads
    std::vector<Io> waiting_;  // a ring of `depth` places; `first_waiting_` begins next
    std::vector<Completion> done_;
    size_t first_waiting_ = 0;
    size_t num_waiting_ = 0;
    std::mutex mutex_;
    std::condition_variable work_there_;
    std::condition_variable enough_done_;
    size_t wanted_ = 0;  // number of completions that `wait` sleeps for
    bool closing_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace outcore
