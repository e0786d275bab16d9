// Map from nodes to slots and back: an open-addressed table beside the reverse array, both in memory of the caller, so
// that processes may share them. Has no lock of its own.
#pragma once

#include <algorithm>
#include <bit>
#include <span>

#include "base/types.hpp"

namespace outcore {

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
