// Bookkeeping of a staging buffer that processes share (GNNDrive, Section 4.4): the holder and the nodes of each
// segment. Holds no rows itself.
#pragma once

#include <array>
#include <vector>

#include "cache/shared_memory.hpp"

namespace outcore {

struct SegmentCounts {
    u64 borrowed = 0;  // segments acquired beyond the party's portion
    u64 found = 0;     // rows copied from other segments
};

// Every party has an equal portion of segments, and may borrow idle segments of others once it holds its portion.
// Portions are counts: no segment belongs to one party. A party that waits for its portion precedes all borrowers, so a
// lender waits no longer than one loan lasts.
class SegmentPool {
public:
    static constexpr u32 max_parties = 256;

    // Uses `bytes(...)` of memory that processes share, aligned to 64 bytes: one process creates the pool, the others
    // attach afterwards. The memory must outlive the object. Throws std::invalid_argument for sizes that do not fit.
    SegmentPool(u32 parties, u32 portion, u32 segment_rows, std::span<std::byte> memory, bool create);

    static u64 bytes(u32 parties, u32 portion, u32 segment_rows);

    enum class State { ok, closed, none };
    // Takes the segment that was free the longest for `party` and forgets its rows. block: waits; the caller must then
    // hold no segment, or parties could block each other. Returns `none` where no segment may be taken now.
    State acquire(u32 party, bool borrow, bool block, u32& segment);
    // Frees a segment. Its published rows stay findable until the next `acquire`: no process may write to it before.
    void release(u32 party, u32 segment);

    // Records row i of the segment, which the caller holds, as that of nodes[i] until the segment is acquired again.
    void publish(u32 segment, Ids nodes);
    // Returns the positions of nodes whose rows lie in some segment now.
    std::vector<i64> present(Ids nodes);
    // Copies the rows of `nodes` that still lie in some segment to the first rows of `segment`, which the caller holds;
    // returns their positions. `staging` is the table of all segments' rows.
    std::vector<i64> fetch(u32 party, u32 segment, Ids nodes, std::span<std::byte> staging, u64 row_bytes);

    // Wakes every waiter; `acquire` returns `closed` from then on.
    void close();

    SegmentCounts counts(u32 party);
    u32 segments() const { return parties_ * portion_; }

private:
    static constexpr u32 no_party = UINT32_MAX;

    struct Segment {
        u32 holder = no_party;
        u32 pins = 0;  // copies of its rows in progress
        u64 freed_at = 0;
    };
    struct Party {
        u32 held = 0, waiting = 0;
        SegmentCounts counts;
    };
    struct Head {
        SharedMutex mutex;
        SharedCondition changed;
        u32 segments = 0;
        u64 time = 0;
        bool closed = false;
        std::array<Party, max_parties> parties{};
    };

    bool closed() const { return head_->closed || head_->mutex.orphaned(); }
    bool may_take(u32 party, bool borrow, bool waited) const;
    u32 oldest_free() const;

    u32 parties_, portion_, segment_rows_;
    Head* head_ = nullptr;
    std::span<Segment> segments_;
    SlotTable nodes_;
};

}  // namespace outcore
