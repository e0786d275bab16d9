// The pread pool: threads take requests from one queue and put completions into another.
#include "pread_pool.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace outcore {

PreadPool::PreadPool(std::uint32_t threads, int fd) : fd_(fd) {
    threads_.reserve(threads);
    for (std::uint32_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
}

PreadPool::~PreadPool() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    work_there_.notify_all();
    for (auto& thread : threads_) thread.join();
}

std::size_t PreadPool::wait(std::span<Completion> out, std::uint32_t at_least) {
    std::unique_lock lock(mutex_);
    const std::size_t added = staged_.size();
    waiting_.insert(waiting_.end(), staged_.begin(), staged_.end());
    staged_.clear();
    if (added > 1) {
        work_there_.notify_all();
    } else if (added == 1) {
        work_there_.notify_one();
    }
    wanted_ = at_least;
    enough_done_.wait(lock, [&] { return done_.size() >= at_least; });
    wanted_ = 0;
    const std::size_t count = std::min(out.size(), done_.size());
    std::copy_n(done_.begin(), count, out.begin());
    done_.erase(done_.begin(), done_.begin() + static_cast<std::ptrdiff_t>(count));
    return count;
}

void PreadPool::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        work_there_.wait(lock, [&] { return closing_ || !waiting_.empty(); });
        if (closing_) return;
        const Io io = waiting_.front();
        waiting_.pop_front();
        lock.unlock();
        const auto at = static_cast<off_t>(io.offset);
        const ssize_t got = io.write ? pwrite(fd_, io.destination, io.length, at) : pread(fd_, io.destination, io.length, at);
        const auto result = static_cast<std::int32_t>(got < 0 ? -errno : got);
        lock.lock();
        done_.push_back({io.tag, result});
        if (wanted_ > 0 && done_.size() >= wanted_) enough_done_.notify_one();
    }
}

}  // namespace outcore
