// Demand policies for one cache size: every miss inserts the row and, in a full cache, evicts another.
#include <algorithm>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>

#include "cache/policies.hpp"

namespace outcore {
namespace {

constexpr u32 none = UINT32_MAX;

u32 pop(std::queue<u32>& rows) {
    const u32 row = rows.front();
    rows.pop();
    return row;
}

// Linked lists of rows, newest at the front; each row is in at most one list.
class Chains {
public:
    Chains(u32 num_rows, size_t chains)
        : newer_(num_rows, none), older_(num_rows, none), front_(chains, none), back_(chains, none) {}

    u32 back(size_t chain) const { return back_[chain]; }
    u32 newer(u32 row) const { return newer_[row]; }
    bool empty(size_t chain) const { return back_[chain] == none; }

    void push(size_t chain, u32 row) {
        const u32 front = std::exchange(front_[chain], row);
        older_[row] = front;
        newer_[row] = none;
        (front == none ? back_[chain] : newer_[front]) = row;
    }

    void remove(size_t chain, u32 row) {
        const u32 newer = newer_[row], older = older_[row];
        (newer == none ? front_[chain] : older_[newer]) = older;
        (older == none ? back_[chain] : newer_[older]) = newer;
    }

private:
    std::vector<u32> newer_, older_, front_, back_;
};

// In each class, `hit(row)` records an access and returns whether the row is cached; `insert(row)` follows a miss.

// First in, first out. With a second chance, the hand spares a row used since it last passed; new rows count as unused.
template <bool second_chance>
class Queue {
public:
    Queue(const AccessTrace& trace, size_t capacity) : state_(trace.num_rows), capacity_(capacity) {}

    bool hit(u32 row) {
        if (state_[row] == 0) return false;
        if constexpr (second_chance) state_[row] = 2;
        return true;
    }

    void insert(u32 row) {
        if (queue_.size() == capacity_) {
            u32 victim = pop(queue_);
            while (state_[victim] == 2) {
                state_[victim] = 1;
                queue_.push(victim);
                victim = pop(queue_);
            }
            state_[victim] = 0;
        }
        queue_.push(row);
        state_[row] = 1;
    }

private:
    std::queue<u32> queue_;
    std::vector<u8> state_;  // 0: not cached, 1: cached, 2: cached and used
    size_t capacity_;
};

// Least frequently used, by all accesses so far, cached or not; among equal counts the least recently used row goes.
class Lfu {
public:
    Lfu(const AccessTrace& trace, size_t capacity)
        : uses_(trace.num_rows),
          cached_(trace.num_rows),
          capacity_(capacity),
          chains_(trace.num_rows, most_uses(trace) + 2) {}

    bool hit(u32 row) {
        const u32 uses = uses_[row]++;
        if (!cached_[row]) return false;
        chains_.remove(uses, row);
        chains_.push(uses + 1, row);
        if (uses == least_ && chains_.empty(uses)) ++least_;  // the row itself has moved to the next chain
        return true;
    }

    void insert(u32 row) {
        if (size_ == capacity_) {
            const u32 victim = chains_.back(least_);
            chains_.remove(least_, victim);
            cached_[victim] = 0;
            --size_;
        }
        cached_[row] = 1;
        chains_.push(uses_[row], row);
        ++size_;
        if (size_ == 1 || uses_[row] < least_) least_ = uses_[row];
        while (chains_.empty(least_)) ++least_;
    }

private:
    static size_t most_uses(const AccessTrace& trace) {
        std::vector<u32> uses(trace.num_rows);
        u32 most = 0;
        for (const u32 row : trace.rows) most = std::max(most, ++uses[row]);
        return most;
    }

    std::vector<u32> uses_;
    std::vector<u8> cached_;
    size_t capacity_;
    Chains chains_;
    u32 least_ = 0;
    size_t size_ = 0;
};

// SIEVE (Zhang et al., NSDI 2024): first in first out, but a hand that moves from the oldest row to the newest leaves
// used rows in place; new rows enter at the front, unused.
class Sieve {
public:
    Sieve(const AccessTrace& trace, size_t capacity)
        : queue_(trace.num_rows, 1), state_(trace.num_rows), capacity_(capacity) {}

    bool hit(u32 row) {
        if (state_[row] == 0) return false;
        state_[row] = 2;
        return true;
    }

    void insert(u32 row) {
        if (size_ == capacity_) {
            u32 victim = hand_ == none ? queue_.back(0) : hand_;
            while (state_[victim] == 2) {
                state_[victim] = 1;
                victim = queue_.newer(victim);
                if (victim == none) victim = queue_.back(0);
            }
            hand_ = queue_.newer(victim);
            queue_.remove(0, victim);
            state_[victim] = 0;
        } else {
            ++size_;
        }
        queue_.push(0, row);
        state_[row] = 1;
    }

private:
    Chains queue_;
    std::vector<u8> state_;  // 0: not cached, 1: cached, 2: cached and used
    size_t capacity_;
    size_t size_ = 0;
    u32 hand_ = none;
};

// S3-FIFO (Yang et al., SOSP 2023): a tenth of the cache is a queue for new rows. Rows used twice there move to the
// main queue, where each use (up to three) gives another round. The ids of the others are remembered, as many as the
// main queue has places, and a miss of a remembered row inserts it directly in the main queue.
class S3Fifo {
public:
    S3Fifo(const AccessTrace& trace, size_t capacity)
        : capacity_(capacity),
          small_places_(std::max<size_t>(1, capacity / 10)),
          main_places_(capacity - small_places_),
          uses_(trace.num_rows),
          cached_(trace.num_rows),
          forgotten_at_(trace.num_rows) {}

    bool hit(u32 row) {
        if (!cached_[row]) return false;
        uses_[row] = std::min<u8>(3, static_cast<u8>(uses_[row] + 1));
        return true;
    }

    void insert(u32 row) {
        while (small_.size() + main_.size() >= capacity_) {
            if (small_.size() >= small_places_) evict_small();
            else evict_main();
        }
        const bool remembered = forgotten_at_[row] > ghosts_;
        forgotten_at_[row] = 0;
        (remembered ? main_ : small_).push(row);
        uses_[row] = 0;
        cached_[row] = 1;
    }

private:
    void evict_small() {
        while (small_.size() > 0) {
            const u32 row = pop(small_);
            if (uses_[row] > 1 && main_places_ > 0) {
                if (main_.size() >= main_places_) evict_main();
                uses_[row] = 0;
                main_.push(row);
            } else {
                cached_[row] = 0;
                forgotten_at_[row] = ++ghosts_ + main_places_;
                return;
            }
        }
    }

    void evict_main() {
        while (main_.size() > 0) {
            const u32 row = pop(main_);
            if (uses_[row] == 0) {
                cached_[row] = 0;
                return;
            }
            --uses_[row];
            main_.push(row);
        }
    }

    size_t capacity_, small_places_, main_places_;
    std::queue<u32> small_, main_;
    std::vector<u8> uses_, cached_;
    std::vector<u64> forgotten_at_;  // number of ghosts at which the id is forgotten; 0: not remembered
    u64 ghosts_ = 0;
};

template <class Cache>
u64 count(const AccessTrace& trace, u64 capacity) {
    if (capacity == 0) return trace.rows.size();
    Cache cache(trace, static_cast<size_t>(std::min<u64>(capacity, trace.num_rows)));
    u64 misses = 0;
    for (const u32 row : trace.rows) {
        if (cache.hit(row)) continue;
        cache.insert(row);
        ++misses;
    }
    return misses;
}

}  // namespace

CountMisses demand_policy(std::string_view name) {
    constexpr std::pair<std::string_view, CountMisses> policies[] = {{"fifo", count<Queue<false>>},
                                                                     {"lfu", count<Lfu>},
                                                                     {"clock", count<Queue<true>>},
                                                                     {"sieve", count<Sieve>},
                                                                     {"s3-fifo", count<S3Fifo>}};
    for (const auto& [known, counts] : policies)
        if (known == name) return counts;
    throw std::invalid_argument("there is no policy " + std::string(name));
}

}  // namespace outcore
