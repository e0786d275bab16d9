// S3-FIFO (Yang et al., SOSP 2023): a tenth of the cache is a queue for new rows. Rows used twice there move to the
// main queue, where each use (up to three) gives another round. The ids of the others are remembered, as many as the
// main queue has places, and a miss of a remembered row inserts it directly in the main queue.
#pragma once

#include <algorithm>

#include "cache/demand/chains.hpp"

namespace outcore {

class S3Fifo {
public:
    static constexpr size_t slot_bytes = Chains::slot_bytes + sizeof(u8);
    static constexpr size_t row_bytes = sizeof(u32);

    S3Fifo(u32 num_rows, u32 capacity)
        : small_places_(std::max<u32>(1, capacity / 10)),
          main_places_(capacity - std::min(capacity, small_places_)),
          queues_(capacity, 2),
          uses_(capacity),
          forgotten_at_(num_rows) {}

    void hit(u32 slot, u32) { uses_[slot] = std::min<u8>(3, static_cast<u8>(uses_[slot] + 1)); }

    void insert(u32 slot, u32 row) {
        const bool remembered = forgotten_at_[row] > ghosts_;
        forgotten_at_[row] = 0;
        push(remembered ? main : small, slot);
    }

    // Frees one slot or more.
    void evict(std::span<const u32> row_of, std::vector<u32>& freed) {
        while (freed.empty()) {
            if (size_[small] >= small_places_) evict_small(row_of, freed);
            else evict_main(freed);
        }
    }

private:
    enum : size_t { small, main };

    void push(size_t queue, u32 slot) {
        queues_.push(queue, slot);
        ++size_[queue];
        uses_[slot] = 0;
    }

    u32 pop(size_t queue) {
        --size_[queue];
        return queues_.pop(queue);
    }

    void evict_small(std::span<const u32> row_of, std::vector<u32>& freed) {
        while (size_[small] > 0) {
            const u32 slot = pop(small);
            if (uses_[slot] < 2 || main_places_ == 0) {
                remember(row_of[slot]);
                freed.push_back(slot);
                return;
            }
            if (size_[main] >= main_places_) evict_main(freed);
            push(main, slot);
        }
    }

    void evict_main(std::vector<u32>& freed) {
        while (size_[main] > 0) {
            const u32 slot = pop(main);
            if (uses_[slot] == 0) {
                freed.push_back(slot);
                return;
            }
            const auto rounds = static_cast<u8>(uses_[slot] - 1);
            push(main, slot);
            uses_[slot] = rounds;
        }
    }

    void remember(u32 row) {
        if (ghosts_ >= UINT32_MAX - main_places_ - 1) restart_count();
        forgotten_at_[row] = ++ghosts_ + main_places_;
    }

    void restart_count() {
        for (u32& at : forgotten_at_) at = at > ghosts_ ? at - ghosts_ : 0;
        ghosts_ = 0;
    }

    u32 small_places_, main_places_;
    Chains queues_;
    u32 size_[2] = {};
    std::vector<u8> uses_;
    std::vector<u32> forgotten_at_;  // by row: number of ghosts at which its id is forgotten; 0: not remembered
    u32 ghosts_ = 0;
};

}  // namespace outcore
