// Bookkeeping of a staging buffer that processes share (GNNDrive, Section 4.4): the holder and the nodes of each
// segment. Holds no rows itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "node_table.hpp"
#include "shared_sync.hpp"

namespace outcore {

struct SegmentCounts {
    std::uint64_t borrowed = 0;  // segments acquired beyond the party's portion
    std::uint64_t found = 0;     // rows copied from other segments
};

// Every party has an equal portion of segments, and may borrow idle segments of others once it holds its portion.
// Portions are counts: no segment belongs to one party. A party that waits for its portion precedes all borrowers, so a
// lender waits no longer than one loan lasts.
class SegmentPool {
public:
    static constexpr std::uint32_t max_parties = 256;

    // Uses `bytes(...)` of memory that processes share, aligned to 64 bytes: one process creates the pool, the others
    // attach after that. The memory has to outlive the object. Throws std::invalid_argument for sizes that do not fit.
    SegmentPool(std::uint32_t parties, std::uint32_t portion, std::uint32_t segment_rows, std::span<std::byte> memory,
                bool create);

    static std::uint64_t bytes(std::uint32_t parties, std::uint32_t portion, std::uint32_t segment_rows);

    enum class State { ok, closed, none };
    // Takes the segment that was free the longest for `party` and forgets its rows. block: waits; the caller must then
    // hold no segment, or parties could block each other. Returns `none` where no segment may be taken now.
    State acquire(std::uint32_t party, bool borrow, bool block, std::uint32_t& segment);
    // Frees a segment. Its published rows stay findable until the next `acquire`: no process may write to it before.
    void release(std::uint32_t party, std::uint32_t segment);

    // Records row i of the segment, which the caller holds, as that of nodes[i] until the segment is acquired again.
    void publish(std::uint32_t segment, std::span<const std::int64_t> nodes);
    // Returns the positions of nodes whose rows lie in some segment now.
    std::vector<std::int64_t> present(std::span<const std::int64_t> nodes);
    // Copies the rows of `nodes` that still lie in some segment to the first rows of `segment`, which the caller holds;
    // returns their positions. `staging` is the table of all segments' rows.
    std::vector<std::int64_t> fetch(std::uint32_t party, std::uint32_t segment, std::span<const std::int64_t> nodes,
                                    std::span<std::byte> staging, std::uint64_t row_bytes);

    // Wakes every waiter; `acquire` returns `closed` from then on.
    void close();

    SegmentCounts counts(std::uint32_t party);
    std::uint32_t segments() const { return parties_ * portion_; }

private:
    static constexpr std::uint32_t nobody = UINT32_MAX;

    struct Segment {
        std::uint32_t holder = nobody;
        std::uint32_t pins = 0;     // copies of its rows in progress
        std::uint64_t freed_at = 0;
    };
    struct Party {
        std::uint32_t held = 0;
        std::uint32_t waiting = 0;
        SegmentCounts counts;
    };
    struct Head {
        SharedMutex mutex;
        SharedCondition changed;
        std::uint32_t segments = 0;
        std::uint64_t time = 0;
        bool closed = false;
        std::array<Party, max_parties> parties{};
    };

    bool closed() const { return head_->closed || head_->mutex.orphaned(); }
    bool may_take(std::uint32_t party, bool borrow, bool waited) const;
    std::uint32_t oldest_free() const;
    void lay_out(std::byte* memory);

    std::uint32_t parties_;
    std::uint32_t portion_;
    std::uint32_t segment_rows_;
    Head* head_ = nullptr;
    std::span<Segment> segments_;
    NodeTable nodes_;
};

}  // namespace outcore
