// State in memory that processes share: a mutex and a condition, which survive the death of any process, arrays, and a
// map from nodes to slots.
#pragma once

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <climits>
#include <ctime>
#include <stdexcept>
#include <system_error>
#include <utility>

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

// Wakes the waiters on every exit from the scope, also by an exception, once the locks taken after it are released.
class Notify {
public:
    explicit Notify(SharedCondition& condition) : condition_(condition) {}
    Notify(const Notify&) = delete;
    Notify& operator=(const Notify&) = delete;
    ~Notify() { condition_.notify_all(); }

private:
    SharedCondition& condition_;
};

constexpr size_t shared_align = 64;

// Memory that processes share, cut into arrays one behind the other.
class SharedArrays {
public:
    // Throws std::invalid_argument unless the memory is aligned and has so many bytes.
    SharedArrays(std::span<std::byte> memory, u64 bytes) : next_(memory.data()) {
        if (memory.size() < bytes || reinterpret_cast<std::uintptr_t>(next_) % shared_align != 0)
            throw std::invalid_argument("the shared memory is too small or not aligned to 64 bytes");
    }

    template <class T>
    std::span<T> take(size_t count) {
        return {reinterpret_cast<T*>(std::exchange(next_, next_ + bytes<T>(count))), count};
    }

    template <class T>
    static constexpr size_t bytes(size_t count) {
        return up_to(count * sizeof(T), shared_align);
    }

private:
    std::byte* next_;
};

// Map from nodes to slots and back, without a lock: an open-addressed table beside the reverse array.
class SlotTable {
public:
    static constexpr u32 nil = UINT32_MAX;
    static constexpr i64 no_node = -1;

    SlotTable() = default;
    // `table` has `entries(slots)` entries and `node_of` one for each slot.
    SlotTable(std::span<u32> table, std::span<i64> node_of) : table_(table), node_of_(node_of) {}

    static size_t entries(u32 slots) { return std::bit_ceil(2ULL * slots); }

    void clear() {
        std::ranges::fill(table_, nil);
        std::ranges::fill(node_of_, no_node);
    }
    // Returns the slot of a node, or nil.
    u32 find(i64 node) const {
        const size_t mask = table_.size() - 1;
        for (size_t at = home(node);; at = (at + 1) & mask) {
            const u32 slot = table_[at];
            if (slot == nil || node_of_[slot] == node) return slot;
        }
    }
    // Returns the node of a slot, or no_node.
    i64 node_of(u32 slot) const { return node_of_[slot]; }
    // Puts a node into a slot; the node must have no slot and the slot no node.
    void map(i64 node, u32 slot) {
        const size_t mask = table_.size() - 1;
        size_t at = home(node);
        while (table_[at] != nil) at = (at + 1) & mask;
        table_[at] = slot;
        node_of_[slot] = node;
    }
    // Removes a node, which must have a slot.
    void unmap(i64 node) {
        const size_t mask = table_.size() - 1;
        size_t hole = home(node);
        while (node_of_[table_[hole]] != node) hole = (hole + 1) & mask;
        node_of_[table_[hole]] = no_node;
        // No tombstones: later entries move into the hole where that brings them nearer to their home.
        for (size_t at = (hole + 1) & mask; table_[at] != nil; at = (at + 1) & mask) {
            const size_t wanted = home(node_of_[table_[at]]);
            if (((at - wanted) & mask) >= ((at - hole) & mask)) {
                table_[hole] = table_[at];
                hole = at;
            }
        }
        table_[hole] = nil;
    }

private:
    size_t home(i64 node) const {
        // Fibonacci hashing: the high bits of the product are well mixed for consecutive ids.
        const u64 mixed = static_cast<u64>(node) * 0x9E3779B97F4A7C15ULL;
        return static_cast<size_t>(mixed >> (64 - std::bit_width(table_.size() - 1)));
    }

    std::span<u32> table_;
    std::span<i64> node_of_;
};

}  // namespace outcore
