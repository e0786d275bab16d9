// Hash table that gives each node of a batch a slot: open addressing, sized for the batch and not for the graph.
#pragma once

#include <atomic>
#include <bit>
#include <cstring>
#include <limits>

#include "base/scratch.hpp"
#include "base/types.hpp"

namespace outcore {

// Keys are node ids (32 bits where the graph allows it, so that twice as many fit a cache line); a slot's value is the
// node's position in the batch, set once its hop is complete. With `Shared` several threads may insert at once:
// which thread wins a slot changes neither the set of nodes nor, since positions are given by id, the batch.
template <class Key>
class NodeTable {
public:
    static constexpr Key kEmpty = std::numeric_limits<Key>::max();

    // Reserves slots for `count` nodes; every slot must then be cleared.
    void reset(size_t count) {
        const size_t slots = std::bit_ceil(std::max<size_t>(count + count / 3, 64));
        keys_.reserve(slots);
        values_.reserve(slots);
        slots_ = slots;
        shift_ = 64 - std::countr_zero(slots);
    }

    size_t slots() const noexcept { return slots_; }
    bool fits(size_t count) const noexcept { return count + count / 3 <= slots_; }

    // Empties the slots [first, last): threads clear parts of one table.
    void clear(size_t first, size_t last) noexcept {
        std::memset(keys_.data() + first, 0xFF, (last - first) * sizeof(Key));
    }

    void prefetch(Key key) noexcept { __builtin_prefetch(keys_.data() + home(key), 1); }

    template <bool Shared>
    u32 insert(Key key, bool& fresh) noexcept {
        size_t slot = home(key);
        for (;; slot = (slot + 1) & (slots_ - 1)) {
            if constexpr (Shared) {
                std::atomic_ref<Key> place(keys_[slot]);
                Key seen = place.load(std::memory_order_relaxed);
                if (seen == kEmpty && place.compare_exchange_strong(seen, key, std::memory_order_relaxed)) {
                    fresh = true;
                    return static_cast<u32>(slot);
                }
                if (seen == key) {
                    fresh = false;
                    return static_cast<u32>(slot);
                }
            } else {
                // A single branch for found and empty slots: the processor cannot predict which.
                const Key seen = keys_[slot];
                if (seen == key || seen == kEmpty) {
                    keys_[slot] = key;
                    fresh = seen == kEmpty;
                    return static_cast<u32>(slot);
                }
            }
        }
    }

    Key key(u32 slot) noexcept { return keys_[slot]; }
    // Returns the value of a key, or the largest number if it is absent. Thread-safe while no thread inserts.
    u32 find(Key key) noexcept {
        for (size_t slot = home(key);; slot = (slot + 1) & (slots_ - 1)) {
            if (keys_[slot] == key) return values_[slot];
            if (keys_[slot] == kEmpty) return std::numeric_limits<u32>::max();
        }
    }

    u32& value(u32 slot) noexcept { return values_[slot]; }
    u32* values() noexcept { return values_.data(); }
    size_t bytes() const noexcept { return keys_.bytes() + values_.bytes(); }

private:
    size_t home(Key key) const noexcept { return static_cast<size_t>((u64{key} * 0x9E3779B97F4A7C15U) >> shift_); }

    Scratch<Key> keys_;
    Scratch<u32> values_;
    size_t slots_ = 0;
    int shift_ = 58;
};

}  // namespace outcore
