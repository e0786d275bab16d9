// FIFO, and CLOCK: first in, first out with a second chance for rows used since the hand last passed them.
#pragma once

#include <vector>

#include "base/types.hpp"

namespace outcore {

// A full cache's slots in the order of their numbers, from the hand on, are a queue: the hand gives the oldest away.
template <bool second_chance>
class Fifo {
public:
    static constexpr size_t slot_bytes = sizeof(u8);
    static constexpr size_t row_bytes = 0;

    Fifo(u32, u32 capacity) : used_(capacity) {}

    void hit(u32 slot, u32) { used_[slot] = second_chance; }

    void insert(u32 slot, u32) { used_[slot] = false; }

    void evict(std::span<const u32>, std::vector<u32>& freed) {
        while (used_[hand_]) {
            used_[hand_] = false;
            advance();
        }
        freed.push_back(hand_);
        advance();
    }

private:
    void advance() { hand_ = hand_ + 1 == used_.size() ? 0 : hand_ + 1; }

    std::vector<u8> used_;
    u32 hand_ = 0;
};

}  // namespace outcore
