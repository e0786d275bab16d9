// Mutex and condition for memory that processes share; both survive the death of any process.
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>
#include <system_error>

#include "base/types.hpp"

namespace outcore {

// Robust mutex: after the death of its owner the next process takes the lock, and `orphaned` reports the death.
class SharedMutex {
public:
    SharedMutex() {
        pthread_mutexattr_t attributes;
        pthread_mutexattr_init(&attributes);
        pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
        pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
        const int code = pthread_mutex_init(&mutex_, &attributes);
        pthread_mutexattr_destroy(&attributes);
        if (code != 0) throw std::system_error(code, std::generic_category(), "pthread_mutex_init");
    }
    SharedMutex(const SharedMutex&) = delete;
    SharedMutex& operator=(const SharedMutex&) = delete;

    void lock() {
        const int code = pthread_mutex_lock(&mutex_);
        if (code == EOWNERDEAD) {
            orphaned_ = true;
            pthread_mutex_consistent(&mutex_);
        } else if (code != 0) {
            throw std::system_error(code, std::generic_category(), "pthread_mutex_lock");
        }
    }
    void unlock() { pthread_mutex_unlock(&mutex_); }

    // Whether an owner died with the lock held: the guarded data may be half changed. To be read with the lock held.
    bool orphaned() const { return orphaned_; }

private:
    pthread_mutex_t mutex_;
    bool orphaned_ = false;
};

// Condition: a sequence number that waiters sleep on. It keeps no list of waiters, so a killed waiter delays no
// process, unlike with pthread's condition, whose signal may wait for it.
class SharedCondition {
public:
    using Clock = std::chrono::steady_clock;

    void notify_all() {
        sequence_.fetch_add(1, std::memory_order_release);
        syscall(SYS_futex, reinterpret_cast<u32*>(&sequence_), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }

    // Waits for the predicate; returns false if the deadline comes first. `lock` is held on entry and on return.
    template <typename Lock, typename Predicate>
    bool wait_until(Lock& lock, Clock::time_point deadline, Predicate holds) {
        while (!holds()) {
            const u32 seen = sequence_.load(std::memory_order_acquire);
            const auto left = deadline - Clock::now();
            if (left <= Clock::duration::zero()) return false;
            lock.unlock();
            const auto whole = std::chrono::duration_cast<std::chrono::seconds>(left);
            const auto rest = std::chrono::duration_cast<std::chrono::nanoseconds>(left - whole);
            const timespec relative{static_cast<std::time_t>(whole.count()), static_cast<long>(rest.count())};
            syscall(SYS_futex, reinterpret_cast<u32*>(&sequence_), FUTEX_WAIT, seen, &relative, nullptr, 0);
            lock.lock();
        }
        return true;
    }

private:
    std::atomic<u32> sequence_{0};
    static_assert(sizeof(std::atomic<u32>) == sizeof(u32));
};

}  // namespace outcore
