// Buddy allocator of a bounce buffer for requests of any size, released in any order; no fragmentation outlives them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace outcore {

class Buddy {
public:
    static constexpr std::uint32_t none = UINT32_MAX;

    // Hands out runs of 2^k units of `unit_bytes` each from `total_bytes`.
    Buddy(std::size_t total_bytes, std::size_t unit_bytes)
        : unit_bytes_(unit_bytes), units_(static_cast<std::uint32_t>(total_bytes / unit_bytes)), heads_(32, none),
          next_(units_, none), prev_(units_, none), free_order_(units_, used) {
        std::uint32_t at = 0;
        while (at < units_) {
            const std::uint32_t largest = static_cast<std::uint32_t>(std::bit_width(units_ - at)) - 1;
            const std::uint32_t aligned = at == 0 ? largest : static_cast<std::uint32_t>(std::countr_zero(at));
            const std::uint32_t order = aligned < largest ? aligned : largest;
            push(at, order);
            at += 1U << order;
        }
    }

    // Bytes of the buffer that a request of `bytes` occupies.
    static std::size_t rounded(std::size_t bytes, std::size_t unit_bytes) {
        return std::bit_ceil((bytes + unit_bytes - 1) / unit_bytes) * unit_bytes;
    }

    // Returns the byte offset of a run that holds `bytes`, or SIZE_MAX where none is free now.
    std::size_t allocate(std::size_t bytes) {
        const std::uint32_t wanted = order_of(bytes);
        std::uint32_t order = wanted;
        while (order < heads_.size() && heads_[order] == none) ++order;
        if (order >= heads_.size()) return SIZE_MAX;
        const std::uint32_t at = heads_[order];
        remove(at, order);
        while (order > wanted) {
            --order;
            push(at + (1U << order), order);
        }
        return at * unit_bytes_;
    }

    void release(std::size_t offset, std::size_t bytes) {
        auto at = static_cast<std::uint32_t>(offset / unit_bytes_);
        std::uint32_t order = order_of(bytes);
        for (;;) {
            const std::uint32_t twin = at ^ (1U << order);
            if (twin >= units_ || free_order_[twin] != order) break;
            remove(twin, order);
            at = at < twin ? at : twin;
            ++order;
        }
        push(at, order);
    }

private:
    static constexpr std::uint8_t used = 255;

    std::uint32_t order_of(std::size_t bytes) const {
        const std::size_t units = (bytes + unit_bytes_ - 1) / unit_bytes_;
        return units <= 1 ? 0 : static_cast<std::uint32_t>(std::bit_width(units - 1));
    }
    void push(std::uint32_t at, std::uint32_t order) {
        free_order_[at] = static_cast<std::uint8_t>(order);
        prev_[at] = none;
        next_[at] = heads_[order];
        if (heads_[order] != none) prev_[heads_[order]] = at;
        heads_[order] = at;
    }
    void remove(std::uint32_t at, std::uint32_t order) {
        free_order_[at] = used;
        if (prev_[at] != none) {
            next_[prev_[at]] = next_[at];
        } else {
            heads_[order] = next_[at];
        }
        if (next_[at] != none) prev_[next_[at]] = prev_[at];
    }

    std::size_t unit_bytes_;
    std::uint32_t units_;
    std::vector<std::uint32_t> heads_;
    std::vector<std::uint32_t> next_;
    std::vector<std::uint32_t> prev_;
    std::vector<std::uint8_t> free_order_;  // order of the free run that begins here, else `used`
};

}  // namespace outcore
