// LFU: the least frequently used row goes, by all accesses so far, cached or not; among equal counts the row whose last
// use is longest ago.
#pragma once

#include "cache/demand/chains.hpp"

namespace outcore {

class Lfu {
public:
    static constexpr size_t slot_bytes = Chains::slot_bytes;
    static constexpr size_t row_bytes = sizeof(u32);

    Lfu(u32 num_rows, u32 capacity) : uses_(num_rows), chains_(capacity, 2), num_chains_(2) {}

    void hit(u32 slot, u32 row) {
        const u32 uses = uses_[row]++;
        chains_.remove(uses, slot);
        push(uses + 1, slot);
        if (uses == least_ && chains_.empty(uses)) ++least_;  // the row itself has moved to the next chain
    }

    void insert(u32 slot, u32 row) {
        const u32 uses = ++uses_[row];
        push(uses, slot);
        ++size_;
        if (size_ == 1 || uses < least_) least_ = uses;
        while (chains_.empty(least_)) ++least_;
    }

    void evict(std::span<const u32>, std::vector<u32>& freed) {
        freed.push_back(chains_.pop(least_));
        --size_;
    }

private:
    void push(u32 uses, u32 slot) {
        if (uses >= num_chains_) {
            num_chains_ = 2 * size_t{uses};
            chains_.grow(num_chains_);
        }
        chains_.push(uses, slot);
    }

    std::vector<u32> uses_;  // by row
    Chains chains_;          // by number of uses
    size_t num_chains_;
    u32 least_ = 0;
    size_t size_ = 0;
};

}  // namespace outcore
