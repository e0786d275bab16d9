// Feature buffer management (GNNDrive, Section 4.2 and Algorithm 1): slot, references and state of each node's row.
// Holds no feature rows itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "aligned_memory.hpp"
#include "node_table.hpp"
#include "shared_sync.hpp"

namespace outcore {

struct Acquired {
    std::vector<std::int64_t> alias;    // slot of ids[i]
    std::vector<std::int64_t> load;     // positions whose rows the caller must load, then publish
    std::vector<std::int64_t> waiting;  // slots that other callers are loading
};

enum class BufferState { ok, timeout, closed, too_small, failed };

struct BufferCounts {
    std::uint64_t hits = 0;       // rows found valid
    std::uint64_t shared = 0;     // rows found while being loaded
    std::uint64_t misses = 0;     // rows to load
    std::uint64_t evictions = 0;  // valid rows removed from their slot
};

class FeatureBuffer {
public:
    explicit FeatureBuffer(std::uint32_t num_slots);
    // Uses `bytes(num_slots)` bytes of memory that processes share, aligned to 64 bytes: one process creates the buffer
    // in it, and the others attach afterwards. The memory must outlive the object.
    FeatureBuffer(std::uint32_t num_slots, std::span<std::byte> memory, bool create);

    std::uint32_t num_slots() const { return num_slots_; }
    static std::uint64_t bytes(std::uint32_t num_slots);

    // Acquires all slots that a mini-batch needs, or none: an extractor never holds some while it waits for others, so
    // extractors cannot deadlock. First come, first served. Each occurrence of an id adds one reference. For too_small,
    // `needed` is the mini-batch's number of unique rows. An exception leaves the buffer unchanged.
    BufferState acquire(std::span<const std::int64_t> ids, double timeout_s, Acquired& result, std::uint64_t& needed);

    // Marks the rows of these slots as loaded. Throws std::logic_error for a slot that is not being loaded.
    void publish(std::span<const std::int64_t> slots);
    // Marks these slots as failed, except published ones; their waiters get `error`.
    void fail(std::span<const std::int64_t> slots, const std::string& error);
    // Waits until every slot is valid or one has failed, which sets `error`.
    BufferState wait(std::span<const std::int64_t> slots, double timeout_s, std::string& error);
    // Removes one reference from each; a valid slot without references joins the standby list as most recently used.
    void release(std::span<const std::int64_t> slots);

    // Returns the slots of ids that the caller holds. Throws std::logic_error for an id without a slot.
    std::vector<std::int64_t> slots_of(std::span<const std::int64_t> ids);

    // Wakes every waiter; from then on `acquire`, and `wait` for slots that are not valid, return `closed`.
    void close();

    BufferCounts counts();
    std::uint64_t standby();  // number of slots without references

private:
    enum class Slot : std::uint8_t { empty, loading, valid, failed };
    static constexpr std::uint32_t nil = NodeTable::nil;
    class Turn;

    void standby_push_back(std::uint32_t slot);
    void standby_push_front(std::uint32_t slot);
    void standby_remove(std::uint32_t slot);
    std::uint64_t slots_wanted(std::span<const std::int64_t> ids, std::uint64_t& unique);
    void take(std::span<const std::int64_t> ids, Acquired& result) noexcept;
    std::uint32_t checked(std::int64_t slot) const;

    // State other than the arrays, which follow it in the same memory.
    struct Head {
        SharedMutex mutex;
        SharedCondition slots_free;
        SharedCondition rows_there;
        std::uint32_t num_slots = 0;
        std::uint64_t stamp = 0;
        std::uint64_t standby = 0;
        std::uint64_t next_ticket = 0;
        std::array<std::uint64_t, 256> queue{};  // tickets of the callers that wait for slots, oldest first
        std::uint32_t queued = 0;
        struct Failure {
            std::uint32_t slot = nil;
            std::array<char, 252> text{};
        };
        std::array<Failure, 16> failures{};  // the latest failures
        std::uint32_t next_failure = 0;
        BufferCounts counts;
        bool closed = false;
    };

    void lay_out(std::byte* memory);
    void clear();
    bool closed() const { return head_->closed || head_->mutex.orphaned(); }
    std::uint64_t enqueue();
    void dequeue(std::uint64_t ticket);
    std::string failure_of(std::uint32_t slot) const;

    std::uint32_t num_slots_;
    AlignedMemory own_;  // empty where the memory is the caller's
    Head* head_ = nullptr;
    NodeTable nodes_;                      // the mapping table and the reverse mapping array
    std::span<std::uint32_t> references_;
    std::span<Slot> state_;
    std::span<std::uint32_t> next_;        // the standby list, least recently used first; entry num_slots_ is its head
    std::span<std::uint32_t> prev_;
    std::span<std::uint64_t> seen_;        // by slot: stamp of the last call that saw it
};

}  // namespace outcore
