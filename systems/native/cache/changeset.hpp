// Belady's replacement over a superbatch, planned before any row is read (Ginex, section 3.4): linear in the accesses.
#pragma once

#include <type_traits>
#include <vector>

#include "base/aligned_memory.hpp"

namespace outcore {

// Zeroed array in pages of its own, which return to the kernel when it is destroyed: the C library would keep freed
// memory for later, charged to this process while other processes need it.
template <class T>
class PageArray {
public:
    static_assert(std::is_trivially_copyable_v<T>);
    PageArray() = default;
    explicit PageArray(size_t size) : memory_(size * sizeof(T)), size_(size) {}

    T& operator[](size_t i) { return begin()[i]; }
    const T& operator[](size_t i) const { return begin()[i]; }
    T* begin() { return reinterpret_cast<T*>(memory_.data()); }
    const T* begin() const { return reinterpret_cast<const T*>(memory_.data()); }
    T* end() { return begin() + size_; }
    size_t bytes() const { return memory_.size(); }

private:
    AlignedMemory memory_;
    size_t size_ = 0;
};

// Lookups and cache updates of one mini-batch.
struct Changeset {
    std::vector<i32> slots;         // by node: its slot in the cache, or -1 for a miss
    std::vector<i32> in_positions;  // positions in the mini-batch of the nodes that enter the cache afterwards
    std::vector<i32> in_slots;      // slots that these nodes enter; a row already there is evicted
    u64 hits = 0, evictions = 0;
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
    ChangesetPlanner(u64 num_nodes, u64 capacity, Ids batch_sizes, unsigned threads);

    // Each throws std::invalid_argument: out of turn, other size than in `batch_sizes`, other nodes than in look_back.
    // look_back also throws std::out_of_range for an invalid node; the planner is unusable after look_back throws.
    void look_back(u32 batch, Ids nodes);
    bool fill(u32 batch, Ids nodes);
    void begin(std::span<const u32> resident = {});
    std::vector<i64> held(u64 begin, u64 end) const;
    Changeset advance(u32 batch, Ids nodes);

    u64 filled() const { return filled_; }
    u64 memory_bytes() const;
    static u64 bytes(u64 num_nodes, u64 capacity, u64 accesses, u64 batches);

private:
    static constexpr u32 none = 0xffffffff;
    static constexpr u32 in_cache = 0x80000000;  // marks a node of the initial cache
    enum class Phase { back, fill, forward };

    // Lists of a fixed part of each mini-batch: several threads plan it, and their number does not change the result.
    struct Lane {
        std::vector<i32> bucket;    // by batch: first slot whose node that batch uses next
        std::vector<u32> present;   // by batch: slots in its bucket
        std::vector<u32> arriving;  // by batch: missed nodes of the current batch that it uses next
        std::vector<u32> incoming;  // positions of missed nodes that are used again
        std::vector<i32> freed;     // slots whose node is not used again
        u32 furthest = 0;           // no later batch has entries in `present` or `arriving`
        u64 hits = 0;
        u64 kept = 0;  // hits whose node is used again
    };
    static constexpr size_t lane_count = 4;

    void check(Phase phase, u32 batch, Ids nodes) const;
    u64 digest(Ids nodes) const;
    void link(Lane& lane, i32 slot, u32 next);
    u32 next_use(u64 access) const;
    void set_next_use(u64 access, u32 batch);
    void look_up(Lane& lane, u64 first, Ids nodes, size_t begin, size_t end, std::span<i32> slots);
    void choose(Ids nodes, u32 batch, Changeset& result);
    void evict(u32 next, u64 count, Changeset& result);

    u64 num_nodes_, capacity_;
    unsigned threads_;
    bool narrow_;  // every batch number fits in 2 bytes an access
    Phase phase_ = Phase::back;
    u32 due_;
    u64 filled_ = 0;
    std::vector<u64> starts_;     // first access of each batch
    std::vector<u64> digests_;    // by batch: digest of its nodes in order, which later passes check
    PageArray<u16> next_narrow_;  // by access: the batch that uses the node next
    PageArray<u32> next_wide_;
    PageArray<u32> of_node_;  // passes 1 and 2: first batch that uses the node; pass 3: its slot
    PageArray<u32> node_in_;  // by slot: the node whose row it holds
    PageArray<i32> link_;     // by slot: the next slot of its bucket
    PageArray<i32> free_;     // free slots; the next to be used is last
    u64 num_free_ = 0;
    std::vector<Lane> lanes_;
    u64 held_ = 0;  // slots in buckets
};

}  // namespace outcore
