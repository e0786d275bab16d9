// Belady's replacement over a superbatch, planned before any row is read (Ginex, section 3.4): linear in the accesses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "aligned_memory.hpp"

namespace outcore {

// Zeroed array in pages of its own, which return to the kernel when it is destroyed: the C library would keep freed
// memory for later, charged to this process while other processes need it.
template <class T>
class PageArray {
public:
    static_assert(std::is_trivially_copyable_v<T>);
    PageArray() = default;
    explicit PageArray(std::size_t size) : memory_(size * sizeof(T)), size_(size) {}

    T& operator[](std::size_t i) { return begin()[i]; }
    const T& operator[](std::size_t i) const { return begin()[i]; }
    T* begin() { return reinterpret_cast<T*>(memory_.data()); }
    const T* begin() const { return reinterpret_cast<const T*>(memory_.data()); }
    T* end() { return begin() + size_; }
    std::size_t bytes() const { return memory_.size(); }

private:
    AlignedMemory memory_;
    std::size_t size_ = 0;
};

// Lookups and cache updates of one mini-batch.
struct Changeset {
    std::vector<std::int32_t> slots;        // by node: its slot in the cache, or -1 for a miss
    std::vector<std::int32_t> in_positions; // positions in the mini-batch of the nodes that enter the cache afterwards
    std::vector<std::int32_t> in_slots;     // slots that these nodes enter; a row already there is evicted
    std::uint64_t hits = 0;
    std::uint64_t evictions = 0;
};

// Planner in three passes over the mini-batches, which the caller streams in, so that no node list stays in memory:
//   look_back(b)  from the last mini-batch to the first: finds the mini-batch that uses each accessed node next;
//   fill(b)       from the first on, until it returns true: selects the initial cache, which is empty without it;
//   begin(), then held(): the nodes of the initial cache by slot, -1 for an empty slot. `resident` has the nodes
//                 that an earlier plan left in the first slots: selected ones keep their slots, the other selected
//                 nodes take the remaining slots by ascending id, so that their rows are read in file order;
//   advance(b)    from the first to the last: finds hits, misses and cache updates. After the last, held() returns the
//                 node whose row each slot holds, used again or not.
// After `advance(b)` the cache holds the rows with the soonest next use among its rows and those of b; other rows of b
// never enter (bypass). Rows with the same next use: cached rows stay, since they cost no copy.
// Node ids are unique within a mini-batch. One thread at a time calls; each call uses `threads`.
class ChangesetPlanner {
public:
    // Throws std::invalid_argument for a number out of range, std::bad_alloc.
    ChangesetPlanner(std::uint64_t num_nodes, std::uint64_t capacity, std::span<const std::int64_t> batch_sizes,
                     unsigned threads);

    // Each throws std::invalid_argument: out of turn, other size than in `batch_sizes`, other nodes than in look_back.
    // look_back also throws std::out_of_range for an invalid node; the planner is unusable after look_back throws.
    void look_back(std::uint32_t batch, std::span<const std::int64_t> nodes);
    bool fill(std::uint32_t batch, std::span<const std::int64_t> nodes);
    void begin(std::span<const std::uint32_t> resident = {});
    std::vector<std::int64_t> held(std::uint64_t begin, std::uint64_t end) const;
    Changeset advance(std::uint32_t batch, std::span<const std::int64_t> nodes);

    std::uint64_t filled() const { return filled_; }
    std::uint64_t memory_bytes() const;
    static std::uint64_t bytes(std::uint64_t num_nodes, std::uint64_t capacity, std::uint64_t accesses, std::uint64_t batches);

private:
    static constexpr std::uint32_t none = 0xffffffff;
    static constexpr std::uint32_t in_cache = 0x80000000;  // marks a node of the initial cache
    enum class Phase { back, fill, forward };

    // Lists of a fixed part of each mini-batch: several threads plan it, and their number does not change the result.
    struct Lane {
        std::vector<std::int32_t> bucket;      // by batch: first slot whose node that batch uses next
        std::vector<std::uint32_t> present;    // by batch: slots in its bucket
        std::vector<std::uint32_t> arriving;   // by batch: missed nodes of the current batch that it uses next
        std::vector<std::uint32_t> incoming;   // positions of missed nodes that are used again
        std::vector<std::int32_t> freed;       // slots whose node is not used again
        std::uint32_t furthest = 0;            // no later batch has entries in `present` or `arriving`
        std::uint64_t hits = 0;
        std::uint64_t kept = 0;                // hits whose node is used again
    };
    static constexpr std::size_t lane_count = 4;

    void check(Phase phase, std::uint32_t batch, std::span<const std::int64_t> nodes) const;
    void check_again(Phase phase, std::uint32_t batch, std::span<const std::int64_t> nodes) const;
    std::uint64_t digest(std::span<const std::int64_t> nodes) const;
    void link(Lane& lane, std::int32_t slot, std::uint32_t next);
    std::uint32_t next_use(std::uint64_t access) const;
    void set_next_use(std::uint64_t access, std::uint32_t batch);
    void look_up(Lane& lane, std::uint64_t first, std::span<const std::int64_t> nodes, std::size_t begin,
                 std::size_t end, std::span<std::int32_t> slots);
    void choose(std::span<const std::int64_t> nodes, std::uint32_t batch, Changeset& result);
    void evict(std::uint32_t next, std::uint64_t count, Changeset& result);

    std::uint64_t num_nodes_;
    std::uint64_t capacity_;
    unsigned threads_;
    bool narrow_;  // every batch number fits in 2 bytes an access
    Phase phase_ = Phase::back;
    std::uint32_t due_;
    std::uint64_t filled_ = 0;
    std::vector<std::uint64_t> starts_;          // first access of each batch
    std::vector<std::uint64_t> digests_;         // by batch: digest of its nodes in order, which later passes check
    PageArray<std::uint16_t> next_narrow_;     // by access: the batch that uses the node next
    PageArray<std::uint32_t> next_wide_;
    PageArray<std::uint32_t> of_node_;         // passes 1 and 2: first batch that uses the node; pass 3: its slot
    PageArray<std::uint32_t> node_in_;         // by slot: the node whose row it holds
    PageArray<std::int32_t> link_;             // by slot: the next slot of its bucket
    PageArray<std::int32_t> free_;             // free slots; the next to be used is last
    std::uint64_t num_free_ = 0;
    std::vector<Lane> lanes_;
    std::uint64_t held_ = 0;                     // slots in buckets
};

}  // namespace outcore
