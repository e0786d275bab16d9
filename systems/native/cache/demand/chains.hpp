// Linked lists of slots, for policies that keep an order.
#pragma once

#include <utility>
#include <vector>

#include "base/types.hpp"

namespace outcore {

constexpr u32 no_slot = UINT32_MAX;

// Lists with the newest slot at the front; each slot is in at most one of them.
class Chains {
public:
    Chains(u32 slots, size_t chains)
        : newer_(slots, no_slot), older_(slots, no_slot), front_(chains, no_slot), back_(chains, no_slot) {}

    // Bytes of a slot in all lists.
    static constexpr size_t slot_bytes = 2 * sizeof(u32);

    u32 back(size_t chain) const { return back_[chain]; }
    u32 newer(u32 slot) const { return newer_[slot]; }
    bool empty(size_t chain) const { return back_[chain] == no_slot; }

    void push(size_t chain, u32 slot) {
        const u32 front = std::exchange(front_[chain], slot);
        older_[slot] = front;
        newer_[slot] = no_slot;
        (front == no_slot ? back_[chain] : newer_[front]) = slot;
    }

    void remove(size_t chain, u32 slot) {
        const u32 newer = newer_[slot];
        const u32 older = older_[slot];
        (newer == no_slot ? front_[chain] : older_[newer]) = older;
        (older == no_slot ? back_[chain] : newer_[older]) = newer;
    }

    u32 pop(size_t chain) {
        const u32 slot = back_[chain];
        remove(chain, slot);
        return slot;
    }

    // Adds empty lists until there are `chains`.
    void grow(size_t chains) {
        front_.resize(chains, no_slot);
        back_.resize(chains, no_slot);
    }

private:
    std::vector<u32> newer_, older_, front_, back_;
};

}  // namespace outcore
