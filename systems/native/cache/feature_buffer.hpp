// State of a feature buffer (GNNDrive, Section 4.2, Algorithm 1): slot, references and state of each row, not the rows.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "base/aligned_memory.hpp"
#include "cache/shared_memory.hpp"

namespace outcore {

struct Acquired {
    std::vector<i64> alias;    // slot of ids[i]
    std::vector<i64> load;     // positions whose rows the caller must load, then publish
    std::vector<i64> waiting;  // slots that other callers are loading
};

enum class BufferState { ok, timeout, closed, too_small, failed };  // bind_cache.cpp names them in this order

struct BufferCounts {
    u64 hits = 0;       // rows found valid
    u64 shared = 0;     // rows found while being loaded
    u64 misses = 0;     // rows to load
    u64 evictions = 0;  // valid rows removed from their slot
};

class FeatureBuffer {
public:
    explicit FeatureBuffer(u32 num_slots);
    // Uses `bytes(num_slots)` bytes of memory that processes share, aligned to 64 bytes: one process creates the buffer
    // in it, and the others attach afterwards. The memory must outlive the object.
    FeatureBuffer(u32 num_slots, std::span<std::byte> memory, bool create);

    static u64 bytes(u32 num_slots);

    // Acquires all slots that a mini-batch needs, or none: an extractor never holds some while it waits for others, so
    // extractors cannot deadlock. First come, first served. Each occurrence of an id adds one reference. For too_small,
    // `needed` is the mini-batch's number of unique rows. An exception leaves the buffer unchanged.
    BufferState acquire(Ids ids, double timeout_s, Acquired& result, u64& needed);

    // Marks the rows of these slots as loaded. Throws std::logic_error for a slot that is not being loaded.
    void publish(Ids slots);
    // Marks these slots as failed, except published ones; their waiters get `error`.
    void fail(Ids slots, const std::string& error);
    // Waits until every slot is valid or one has failed, which sets `error`.
    BufferState wait(Ids slots, double timeout_s, std::string& error);
    // Removes one reference from each; a valid slot without references joins the standby list as most recently used.
    void release(Ids slots);

    // Returns the slots of ids that the caller holds. Throws std::logic_error for an id without a slot.
    std::vector<i64> slots_of(Ids ids);

    // Wakes every waiter; from then on `acquire`, and `wait` for slots that are not valid, return `closed`.
    void close();

    BufferCounts counts();
    u64 standby();  // number of slots without references

private:
    enum class Slot : u8 { empty, loading, valid, failed };
    static constexpr u32 nil = SlotTable::nil;
    class Turn;

    void standby_insert(u32 slot, u32 before);
    void standby_remove(u32 slot);
    u64 slots_wanted(Ids ids, u64& unique);
    void take(Ids ids, Acquired& result) noexcept;
    u32 checked(i64 slot) const;

    // State other than the arrays, which follow it in the same memory.
    struct Head {
        SharedMutex mutex;
        SharedCondition slots_free, rows_there;
        u32 num_slots = 0;
        u64 stamp = 0, standby = 0, next_ticket = 0;
        std::array<u64, 256> queue{};  // tickets of the callers that wait for slots, oldest first
        u32 queued = 0;
        struct Failure {
            u32 slot = nil;
            std::array<char, 252> text{};
        };
        std::array<Failure, 16> failures{};  // the latest failures
        u32 next_failure = 0;
        BufferCounts counts;
        bool closed = false;
    };

    void lay_out(std::span<std::byte> memory, bool create);
    bool closed() const { return head_->closed || head_->mutex.orphaned(); }

    u32 num_slots_;
    AlignedMemory own_;  // empty where the memory is the caller's
    Head* head_ = nullptr;
    SlotTable nodes_;  // the mapping table and the reverse mapping array
    std::span<u32> references_;
    std::span<Slot> state_;
    std::span<u32> next_;  // the standby list, least recently used first; entry num_slots_ is its head
    std::span<u32> prev_;
    std::span<u64> seen_;  // by slot: stamp of the last call that saw it
};

}  // namespace outcore
