// The pread pool: threads take requests from one queue and put completions into another.
#include "io/pread_pool.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/team.hpp"

namespace outcore {

PreadPool::PreadPool(u32 threads, u32 depth, int fd) : fd_(fd), waiting_(depth) {
    staged_.reserve(depth);
    done_.reserve(depth);
    if (start_threads(threads_, threads, [this](size_t) { work(); }) == 0)
        throw std::system_error(EAGAIN, std::generic_category(), "a thread to read with");
}

void PreadPool::abandon() noexcept {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    work_there_.notify_all();
    for (auto& thread : threads_) thread.join();
    threads_.clear();
}

size_t PreadPool::wait(std::span<Completion> out, u32 at_least) {
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

void PreadPool::work() noexcept {
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

}  // namespace outcore
