// LRU: the row whose last use is longest ago goes.
#pragma once

#include "cache/demand/chains.hpp"

namespace outcore {

class Lru {
public:
    static constexpr size_t slot_bytes = Chains::slot_bytes;
    static constexpr size_t row_bytes = 0;

    Lru(u32, u32 capacity) : uses_(capacity, 1) {}

    void hit(u32 slot, u32) {
        uses_.remove(0, slot);
        uses_.push(0, slot);
    }

    void insert(u32 slot, u32) { uses_.push(0, slot); }

    void evict(std::span<const u32>, std::vector<u32>& freed) { freed.push_back(uses_.pop(0)); }

private:
    Chains uses_;  // the latest use at the front
};

}  // namespace outcore
