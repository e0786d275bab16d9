// Reads and writes by a pool of threads that call pread and pwrite, for hosts where io_uring is missing or forbidden.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/team.hpp"
#include "base/types.hpp"
#include "io/backend.hpp"

namespace outcore {

class PreadPool final : public IoBackend {
public:
    // Starts fewer threads where the host gives no more. Throws std::system_error where it gives none.
    PreadPool(u32 threads, u32 depth, int fd) : fd_(fd), waiting_(depth) {
        staged_.reserve(depth);
        done_.reserve(depth);
        if (start_threads(threads_, threads, [this](size_t) { work(); }) == 0)
            throw std::system_error(EAGAIN, std::generic_category(), "a thread to read with");
    }
    ~PreadPool() override { abandon(); }

    void queue(const Io& io) override { staged_.push_back(io); }

    size_t wait(std::span<Completion> out, u32 at_least) override {
        std::unique_lock lock(mutex_);
        const size_t added = staged_.size();
        for (const Io& io : staged_) waiting_[(first_waiting_ + num_waiting_++) % waiting_.size()] = io;
        staged_.clear();
        if (added > 1) {
            work_there_.notify_all();
        } else if (added == 1) {
            work_there_.notify_one();
        }
        wanted_ = at_least;
        enough_done_.wait(lock, [&] { return done_.size() >= at_least; });
        wanted_ = 0;
        const size_t count = std::min(out.size(), done_.size());
        std::copy_n(done_.begin(), count, out.begin());
        done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
        return count;
    }

    void abandon() noexcept override {
        {
            const std::lock_guard lock(mutex_);
            closing_ = true;
        }
        work_there_.notify_all();
        for (auto& thread : threads_) thread.join();
        threads_.clear();
    }

private:
    void work() noexcept {
        std::unique_lock lock(mutex_);
        for (;;) {
            work_there_.wait(lock, [&] { return closing_ || num_waiting_ > 0; });
            if (closing_) return;
            const Io io = waiting_[first_waiting_];
            first_waiting_ = (first_waiting_ + 1) % waiting_.size();
            --num_waiting_;
            lock.unlock();
            const auto at = static_cast<off_t>(io.offset);
            const ssize_t got =
                io.write ? pwrite(fd_, io.destination, io.length, at) : pread(fd_, io.destination, io.length, at);
            const auto result = static_cast<i32>(got < 0 ? -errno : got);
            lock.lock();
            done_.push_back({io.tag, result});
            if (wanted_ > 0 && done_.size() >= wanted_) enough_done_.notify_one();
        }
    }

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
