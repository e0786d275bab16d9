// Map from nodes to slots and back: an open-addressed table beside the reverse array, both in memory of the caller, so
// that processes may share them. Has no lock of its own.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace outcore {

class NodeTable {
public:
    static constexpr std::uint32_t nil = UINT32_MAX;
    static constexpr std::int64_t no_node = -1;

    NodeTable() = default;
    // `table` has `entries(slots)` entries and `node_of` one for each slot.
    NodeTable(std::span<std::uint32_t> table, std::span<std::int64_t> node_of) : table_(table), node_of_(node_of) {}

    static std::size_t entries(std::uint32_t slots) { return std::bit_ceil(2ULL * slots); }

    void clear() {
        std::ranges::fill(table_, nil);
        std::ranges::fill(node_of_, no_node);
    }
    // Returns the slot of a node, or nil.
    std::uint32_t find(std::int64_t node) const {
        const std::size_t mask = table_.size() - 1;
        for (std::size_t at = home(node);; at = (at + 1) & mask) {
            const std::uint32_t slot = table_[at];
            if (slot == nil || node_of_[slot] == node) return slot;
        }
    }
    // Returns the node of a slot, or no_node.
    std::int64_t node_of(std::uint32_t slot) const { return node_of_[slot]; }
    // Puts a node into a slot; the node must have no slot and the slot no node.
    void map(std::int64_t node, std::uint32_t slot) {
        const std::size_t mask = table_.size() - 1;
        std::size_t at = home(node);
        while (table_[at] != nil) at = (at + 1) & mask;
        table_[at] = slot;
        node_of_[slot] = node;
    }
    // Removes a node, which must have a slot.
    void unmap(std::int64_t node) {
        const std::size_t mask = table_.size() - 1;
        std::size_t hole = home(node);
        while (node_of_[table_[hole]] != node) hole = (hole + 1) & mask;
        node_of_[table_[hole]] = no_node;
        // No tombstones: later entries move into the hole where that brings them nearer to their home.
        for (std::size_t at = (hole + 1) & mask; table_[at] != nil; at = (at + 1) & mask) {
            const std::size_t wanted = home(node_of_[table_[at]]);
            if (((at - wanted) & mask) >= ((at - hole) & mask)) {
                table_[hole] = table_[at];
                hole = at;
            }
        }
        table_[hole] = nil;
    }

private:
    std::size_t home(std::int64_t node) const {
        // Fibonacci hashing: the high bits of the product are well mixed for consecutive ids.
        const std::uint64_t mixed = static_cast<std::uint64_t>(node) * 0x9E3779B97F4A7C15ULL;
        return static_cast<std::size_t>(mixed >> (64 - std::bit_width(table_.size() - 1)));
    }

    std::span<std::uint32_t> table_;
    std::span<std::int64_t> node_of_;
};

}  // namespace outcore
