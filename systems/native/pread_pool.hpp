// Reads and writes by a pool of threads that call pread and pwrite: what is left where io_uring is missing or forbidden.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "io_backend.hpp"

namespace outcore {

class PreadPool final : public IoBackend {
public:
    PreadPool(std::uint32_t threads, int fd);
    PreadPool(const PreadPool&) = delete;
    PreadPool& operator=(const PreadPool&) = delete;
    ~PreadPool() override;

    void queue(const Io& io) override { staged_.push_back(io); }
    std::size_t wait(std::span<Completion> out, std::uint32_t at_least) override;

private:
    void work();

    int fd_;
    std::vector<Io> staged_;  // queued, not yet given to the threads
    std::mutex mutex_;
    std::condition_variable work_there_;
    std::condition_variable enough_done_;
    std::deque<Io> waiting_;
    std::deque<Completion> done_;
    std::size_t wanted_ = 0;  // its user sleeps until this many are done
    bool closing_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace outcore
