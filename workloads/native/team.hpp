// A small persistent team of threads that help the caller with one task after the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "first_error.hpp"

namespace outcore {

// The caller is member 0 and must be able to finish every task alone: other members join a task if they start in time,
// and the caller waits only for members that joined. So busy cores never make a team slower than its caller alone. The
// team is smaller than `size` where the host gives no more threads.
class Team {
public:
    explicit Team(int size) {
        // Spinning hides the wake-up only where every member has a core of its own.
        spins_ = static_cast<unsigned>(size) <= std::thread::hardware_concurrency() ? 2000 : 0;
        if (size > 1) start_threads(workers_, static_cast<std::size_t>(size) - 1, [this](std::size_t i) { serve(static_cast<int>(i) + 1); });
    }

    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    ~Team() {
        stop_.store(true, std::memory_order_relaxed);
        state_.fetch_add(kRound, std::memory_order_release);
        state_.notify_all();
        for (auto& worker : workers_) worker.join();
    }

    int size() const noexcept { return static_cast<int>(workers_.size()) + 1; }

    // Runs task(member) on the caller and on every member that joins before the caller is done. The first error of any
    // member is thrown here, when all of them have finished.
    void run(const std::function<void(int)>& task) {
        if (workers_.empty()) return task(0);
        task_ = &task;
        // Release: joining members must see the task and all earlier writes of the caller.
        state_.store((state_.load(std::memory_order_relaxed) + kRound) | kOpen, std::memory_order_release);
        state_.notify_all();
        error_.attempt([&] { task(0); });
        state_.fetch_and(~kOpen, std::memory_order_relaxed);
        await([](std::uint32_t state) { return (state & kJoined) == 0; });
        error_.rethrow();
    }

    // Runs body(part) once for each part in [0, parts), on any free member.
    template <class Body>
    void share(std::size_t parts, const Body& body) {
        std::atomic<std::size_t> next{0};
        run([&](int) {
            for (std::size_t part; (part = next.fetch_add(1, std::memory_order_relaxed)) < parts;) body(part);
        });
    }

private:
    // The state holds the round's number (high half), whether it is open to join, and the number of members at work.
    static constexpr std::uint32_t kRound = 1U << 16, kOpen = 1U << 15, kJoined = kOpen - 1;

    void serve(int member) noexcept {
        for (std::uint32_t seen = 0;;) {
            std::uint32_t state = await([&](std::uint32_t now) {
                return stop_.load(std::memory_order_relaxed) || ((now & kOpen) != 0 && now / kRound != seen);
            });
            if (stop_.load(std::memory_order_relaxed)) return;
            // The exchange fails if the round was closed meanwhile or another member joined: look again.
            if (!state_.compare_exchange_strong(state, state + 1, std::memory_order_acquire)) continue;
            seen = state / kRound;
            error_.attempt([&] { (*task_)(member); });
            state = state_.fetch_sub(1, std::memory_order_release) - 1;
            if ((state & (kOpen | kJoined)) == 0) state_.notify_all();
        }
    }

    // Waits until ready(state), first spinning, then asleep.
    template <class Ready>
    std::uint32_t await(Ready ready) const noexcept {
        for (unsigned spin = 0;; ++spin) {
            const std::uint32_t state = state_.load(std::memory_order_acquire);
            if (ready(state)) return state;
            if (spin >= spins_) {
                state_.wait(state, std::memory_order_acquire);
                continue;
            }
#if defined(__x86_64__)
            __builtin_ia32_pause();
#endif
        }
    }

    std::vector<std::thread> workers_;
    FirstError error_;
    std::atomic<std::uint32_t> state_{0};
    const std::function<void(int)>* task_ = nullptr;
    std::atomic<bool> stop_{false};
    unsigned spins_ = 0;
};

}  // namespace outcore
