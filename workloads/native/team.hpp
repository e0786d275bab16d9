// A small persistent team of threads that runs one task on all of its members and waits for all of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace outcore {

class Team {
public:
    // The caller is member 0; `size - 1` threads are started.
    explicit Team(int size) : errors_(static_cast<std::size_t>(size)) {
        // Spinning hides the wake-up only where every member has a core of its own.
        spins_ = static_cast<unsigned>(size) <= std::thread::hardware_concurrency() ? 4000 : 0;
        for (int member = 1; member < size; ++member) workers_.emplace_back([this, member] { serve(member); });
    }

    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    ~Team() {
        stop_ = true;
        start();
        for (auto& worker : workers_) worker.join();
    }

    int size() const noexcept { return static_cast<int>(workers_.size()) + 1; }

    // Runs task(member) on every member. The first error of any member is thrown here, after all have finished.
    void run(const std::function<void(int)>& task) {
        if (!workers_.empty()) {
            task_ = &task;
            running_.store(static_cast<std::uint32_t>(workers_.size()), std::memory_order_relaxed);
            start();
        }
        attempt(task, 0);
        if (!workers_.empty()) {
            for (std::uint32_t left; (left = wait_while_spinning(running_, [](auto n) { return n == 0; })) != 0;)
                running_.wait(left, std::memory_order_acquire);
        }
        for (auto& error : errors_)
            if (error) std::rethrow_exception(std::exchange(error, nullptr));
    }

private:
    void start() noexcept {
        // Release: the members must see the task and everything the caller wrote before it.
        round_.fetch_add(1, std::memory_order_release);
        round_.notify_all();
    }

    void attempt(const std::function<void(int)>& task, int member) noexcept {
        try {
            task(member);
        } catch (...) {
            errors_[static_cast<std::size_t>(member)] = std::current_exception();
        }
    }

    void serve(int member) noexcept {
        for (std::uint32_t done = 0;; ++done) {
            while (wait_while_spinning(round_, [done](auto round) { return round != done; }) == done)
                round_.wait(done, std::memory_order_acquire);
            if (stop_) return;
            attempt(*task_, member);
            if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
        }
    }

    template <class Ready>
    std::uint32_t wait_while_spinning(const std::atomic<std::uint32_t>& value, Ready ready) const noexcept {
        std::uint32_t seen = value.load(std::memory_order_acquire);
        for (unsigned spin = 0; spin < spins_ && !ready(seen); ++spin) {
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
            seen = value.load(std::memory_order_acquire);
        }
        return seen;
    }

    std::vector<std::thread> workers_;
    std::vector<std::exception_ptr> errors_;
    std::atomic<std::uint32_t> round_{0};
    std::atomic<std::uint32_t> running_{0};
    const std::function<void(int)>* task_ = nullptr;
    std::atomic<bool> stop_{false};
    unsigned spins_ = 0;
};

}  // namespace outcore
