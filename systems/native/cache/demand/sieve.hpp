// SIEVE (Zhang et al., NSDI 2024): first in first out, but a hand that moves from the oldest row to the newest leaves
// used rows in place; new rows enter at the front, unused.
#pragma once

#include "cache/demand/chains.hpp"

namespace outcore {

class Sieve {
public:
    static constexpr size_t slot_bytes = Chains::slot_bytes + sizeof(u8);
    static constexpr size_t row_bytes = 0;

    Sieve(u32, u32 capacity) : queue_(capacity, 1), used_(capacity) {}

    void hit(u32 slot, u32) { used_[slot] = true; }

    void insert(u32 slot, u32) {
        queue_.push(0, slot);
        used_[slot] = false;
    }

    void evict(std::span<const u32>, std::vector<u32>& freed) {
        u32 victim = hand_ == no_slot ? queue_.back(0) : hand_;
        while (used_[victim]) {
            used_[victim] = false;
            victim = queue_.newer(victim);
            if (victim == no_slot) victim = queue_.back(0);
        }
        hand_ = queue_.newer(victim);
        queue_.remove(0, victim);
        freed.push_back(victim);
    }

private:
    Chains queue_;
    std::vector<u8> used_;
    u32 hand_ = no_slot;
};

}  // namespace outcore
