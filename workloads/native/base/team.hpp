// Threads that help a caller, and the exceptions of threads carried to the caller that waits for them: an exception that
// leaves a thread ends the process.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/types.hpp"

namespace outcore {

// The first exception of several threads.
class FirstError {
public:
    // Runs the body; returns true if it threw nothing.
    template <class Body>
    bool attempt(Body&& body) noexcept {
        try {
            body();
            return true;
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!error_) error_ = std::current_exception();
            return false;
        }
    }

    // Throws and forgets the first exception, if any; to be called once all threads are done.
    void rethrow() {
        if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    }

private:
    std::mutex mutex_;
    std::exception_ptr error_;
};

// Starts up to `count` threads, fewer where the host gives no more; returns how many.
template <class Body>  // body(number), which throws nothing
size_t start_threads(std::vector<std::thread>& threads, size_t count, const Body& body) {
    size_t started = 0;
    try {
        threads.reserve(threads.size() + count);
        for (; started < count; ++started) threads.emplace_back(body, started);
    } catch (...) {  // the started threads do the work
    }
    return started;
}

// A persistent team of threads. The caller is member 0 and must be able to finish every task alone: other members join
// a task if they start in time, and the caller waits only for members that joined. So busy cores never make a team
// slower than its caller alone. The team is smaller than `size` where the host gives no more threads.
class Team {
public:
    explicit Team(int size, bool spin = true) : spin_(spin) { grow(size); }
    ~Team() {
        stop_.store(true, std::memory_order_relaxed);
        state_.fetch_add(kRound, std::memory_order_release);
        state_.notify_all();
        for (auto& worker : workers_) worker.join();
    }

    int size() const noexcept { return static_cast<int>(workers_.size()) + 1; }

    // Adds members up to `size`, between two tasks.
    void grow(int size) {
        // Spinning hides the wake-up only where every member has a core of its own.
        spins_ = spin_ && static_cast<unsigned>(size) <= std::thread::hardware_concurrency() ? 2000 : 0;
        const int members = this->size();
        if (size <= members) return;
        start_threads(workers_, static_cast<size_t>(size - members),
                      [this, members](size_t i) { serve(members + static_cast<int>(i)); });
    }

    // Runs task(member) on the caller and on every member below `limit` that joins before the caller is done. The first
    // error of any member is thrown here, when all of them have finished.
    template <class Task>
    void run(const Task& task, int limit = kAll) {
        if (workers_.empty() || limit <= 1) return task(0);
        task_ = &task;
        call_ = [](const void* body, int member) { (*static_cast<const Task*>(body))(member); };
        limit_.store(limit, std::memory_order_relaxed);
        // Release: joining members must see the task and all earlier writes of the caller.
        state_.store((state_.load(std::memory_order_relaxed) + kRound) | kOpen, std::memory_order_release);
        state_.notify_all();
        error_.attempt([&] { task(0); });
        state_.fetch_and(~kOpen, std::memory_order_relaxed);
        await([](u32 state) { return (state & kJoined) == 0; });
        error_.rethrow();
    }

    // Runs body(begin, end, member) over [0, count) in chunks, on any free member below `limit`. Chunks that have not
    // begun when a body throws are left out.
    template <class Body>
    void loop(size_t count, size_t chunk, const Body& body, int limit = kAll) {
        std::atomic<size_t> next{0};
        const auto work = [&](int member) {
            try {
                for (size_t begin; (begin = next.fetch_add(chunk, std::memory_order_relaxed)) < count;)
                    body(begin, std::min(begin + chunk, count), member);
            } catch (...) {
                next.store(count, std::memory_order_relaxed);
                throw;
            }
        };
        run(work, limit);
    }

    // Runs body(part) once for each part in [0, parts), on any free member.
    template <class Body>
    void share(size_t parts, const Body& body) {
        loop(parts, 1, [&](size_t part, size_t, int) { body(part); });
    }

private:
    friend class SharedTeam;

    static constexpr int kAll = 1 << 15;
    // The state holds the round's number (high half), whether it is open to join, and the number of members at work.
    static constexpr u32 kRound = 1U << 16, kOpen = 1U << 15, kJoined = kOpen - 1;

    void serve(int member) noexcept {
        for (u32 seen = 0;;) {
            u32 state = await([&](u32 now) {
                return stop_.load(std::memory_order_relaxed) || ((now & kOpen) != 0 && now / kRound != seen);
            });
            if (stop_.load(std::memory_order_relaxed)) return;
            if (member >= limit_.load(std::memory_order_relaxed)) {
                seen = state / kRound;
                continue;
            }
            // The exchange fails if the round was closed meanwhile or another member joined: look again.
            if (!state_.compare_exchange_strong(state, state + 1, std::memory_order_acquire)) continue;
            seen = state / kRound;
            error_.attempt([&] { call_(task_, member); });
            state = state_.fetch_sub(1, std::memory_order_release) - 1;
            if ((state & (kOpen | kJoined)) == 0) state_.notify_all();
        }
    }

    // Waits until ready(state), first spinning, then asleep.
    template <class Ready>
    u32 await(Ready ready) const noexcept {
        for (unsigned spin = 0;; ++spin) {
            const u32 state = state_.load(std::memory_order_acquire);
            if (ready(state)) return state;
            if (spin >= spins_.load(std::memory_order_relaxed)) {
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
    std::atomic<u32> state_{0};
    std::atomic<int> limit_{kAll};
    std::atomic<unsigned> spins_{0};
    const void* task_ = nullptr;
    void (*call_)(const void*, int) = nullptr;
    std::atomic<bool> stop_{false};
    bool spin_;
    Team* next_idle_ = nullptr;
    pid_t owner_ = getpid();
};

// Idle teams of the process, of which each loop borrows a team: several callers may run at once, each with its own threads.
class SharedTeam {
public:
    explicit SharedTeam(int size) {
        {
            const std::lock_guard lock(mutex());
            // A forked child has the memory of its parent's teams but not their threads: it leaves them alone.
            while ((team_ = idle()) != nullptr) {
                idle() = team_->next_idle_;
                if (team_->owner_ == getpid()) break;
            }
        }
        if (team_ == nullptr) team_ = new (std::nothrow) Team(1, false);
        if (team_ != nullptr) team_->grow(size);
    }
    SharedTeam(const SharedTeam&) = delete;
    SharedTeam& operator=(const SharedTeam&) = delete;
    ~SharedTeam() {
        if (team_ == nullptr) return;
        const std::lock_guard lock(mutex());
        team_->next_idle_ = std::exchange(idle(), team_);
    }

    Team* get() const noexcept { return team_; }  // null without memory for a team

private:
    // Neither is ever destroyed: a member may be in a page fault when the process ends.
    static std::mutex& mutex() {
        static std::mutex& one = *new std::mutex;
        return one;
    }
    static Team*& idle() {
        static Team* first = nullptr;
        return first;
    }

    Team* team_ = nullptr;
};

// Runs body(begin, end, member) over [0, count) in chunks, on up to `threads` threads with the caller among them; fewer
// where the host gives no more. Rethrows the first exception of the body once no thread is inside it.
template <class Body>
void parallel(i64 count, i64 chunk, i64 threads, const Body& body) {
    if (count <= 0) return;
    chunk = std::max<i64>(chunk, 1);
    const i64 chunks = count / chunk + (count % chunk != 0);
    const int members = static_cast<int>(std::min(std::max<i64>(threads, 1), chunks));
    if (members > 1) {
        const SharedTeam shared(members);
        if (Team* team = shared.get())
            return team->loop(static_cast<size_t>(count), static_cast<size_t>(chunk), body, members);
    }
    for (i64 begin = 0; begin < count; begin += chunk)
        body(static_cast<size_t>(begin), static_cast<size_t>(std::min(begin + chunk, count)), 0);
}

}  // namespace outcore
