// Buddy allocator of a bounce buffer for requests of any size, released in any order; no fragmentation outlives them.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "base/types.hpp"

namespace outcore {

class Buddy {
public:
    static constexpr u32 none = UINT32_MAX;

    // Hands out runs of 2^k units of `unit_bytes` each from `total_bytes`.
    Buddy(size_t total_bytes, size_t unit_bytes)
        : unit_bytes_(unit_bytes),
          units_(static_cast<u32>(total_bytes / unit_bytes)),
          heads_(32, none),
          next_(units_, none),
          prev_(units_, none),
          free_order_(units_, used) {
        for (u32 at = 0, order = 0; at < units_; at += 1U << order) {
            order = static_cast<u32>(std::bit_width(units_ - at)) - 1;
            if (at > 0) order = std::min(order, static_cast<u32>(std::countr_zero(at)));
            push(at, order);
        }
    }

    // Bytes of the buffer that a request of `bytes` occupies.
    static size_t rounded(size_t bytes, size_t unit_bytes) {
        return std::bit_ceil((bytes + unit_bytes - 1) / unit_bytes) * unit_bytes;
    }

    // Returns the byte offset of a run that holds `bytes`, or SIZE_MAX where none is free now.
    size_t allocate(size_t bytes) {
        const u32 wanted = order_of(bytes);
        u32 order = wanted;
        while (order < heads_.size() && heads_[order] == none) ++order;
        if (order >= heads_.size()) return SIZE_MAX;
        const u32 at = heads_[order];
        remove(at, order);
        while (order > wanted) {
            --order;
            push(at + (1U << order), order);
        }
        return at * unit_bytes_;
    }

    void release(size_t offset, size_t bytes) {
        auto at = static_cast<u32>(offset / unit_bytes_);
        u32 order = order_of(bytes);
        for (;;) {
            const u32 twin = at ^ (1U << order);
            if (twin >= units_ || free_order_[twin] != order) break;
            remove(twin, order);
            at = at < twin ? at : twin;
            ++order;
        }
        push(at, order);
    }

private:
    static constexpr u8 used = 255;

    u32 order_of(size_t bytes) const {
        const size_t units = (bytes + unit_bytes_ - 1) / unit_bytes_;
        return units <= 1 ? 0 : static_cast<u32>(std::bit_width(units - 1));
    }
    void push(u32 at, u32 order) {
        free_order_[at] = static_cast<u8>(order);
        prev_[at] = none;
        next_[at] = heads_[order];
        if (heads_[order] != none) prev_[heads_[order]] = at;
        heads_[order] = at;
    }
    void remove(u32 at, u32 order) {
        free_order_[at] = used;
        (prev_[at] != none ? next_[prev_[at]] : heads_[order]) = next_[at];
        if (next_[at] != none) prev_[next_[at]] = prev_[at];
    }

    size_t unit_bytes_;
    u32 units_;
    std::vector<u32> heads_;
    std::vector<u32> next_;
    std::vector<u32> prev_;
    std::vector<u8> free_order_;  // order of the free run that begins here, else `used`
};

}  // namespace outcore
