// Belady's replacement over a superbatch, planned before any row is read (Ginex, section 3.4): linear in the accesses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "aligned_memory.hpp"

namespace outcore {

// An array of its own pages, which go back to the kernel with it: the C library would keep what it has of them for
// later, charged to this process while others need it. Zeroed.
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

// What the cache does for one mini-batch.
struct Changeset {
    std::vector<std::int32_t> slots;        // of each node: where it is cached, or -1: a miss
    std::vector<std::int32_t> in_positions; // nodes that enter the cache afterwards, as positions in the mini-batch
    std::vector<std::int32_t> in_slots;     // and where; who was there is evicted
    std::uint64_t hits = 0;
    std::uint64_t evictions = 0;
};

// Three passes over the mini-batches, which the caller streams in, so that no access need stay in memory:
//   look_back(b)  for b from the last to the first: when each access is followed by the next of the same node;
//   fill(b)       from the first on, until it says that the cache is full: who is in it at the start (none: an empty one);
//   begin(), then held(): the nodes of the initial cache by slot, -1 where there is none. What `resident` has in the
//                 first slots, left by an earlier plan, stays where it is; the others take the slots that are left,
//                 ascending, so that their rows are read in file order;
//   advance(b)    from the first to the last: hits, misses and updates. After the last, held() says whose row each slot
//                 has, used again or not.
// After `advance(b)` the cache holds, of what it held and what b brought, the rows used again soonest; a row that is not
// among them never enters (bypass). Among rows used next by the same mini-batch those already cached stay, since they
// cost no copy. Node ids are unique within a mini-batch. One thread at a time calls; each call uses `threads`.
class ChangesetPlanner {
public:
    // Throws std::invalid_argument: a number out of its range; std::bad_alloc.
    ChangesetPlanner(std::uint64_t num_nodes, std::uint64_t capacity, std::span<const std::int64_t> batch_sizes,
                     unsigned threads);

    // Each throws std::invalid_argument: out of turn, another size than announced, other nodes than looked back at;
    // look_back throws std::out_of_range for no such node, and is unusable after a throw.
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

    // A fixed part of each mini-batch with lists of its own, so that several threads plan it and their number changes
    // nothing in the result.
    struct Lane {
        std::vector<std::int32_t> bucket;      // by batch: first slot whose node that batch uses next
        std::vector<std::uint32_t> present;    // by batch: slots in its bucket
        std::vector<std::uint32_t> arriving;   // by batch: missed nodes at hand that it uses next
        std::vector<std::uint32_t> incoming;   // positions of missed nodes that are used again
        std::vector<std::int32_t> freed;       // slots whose node is not used again
        std::uint32_t furthest = 0;            // no batch after it is the next to use any of these
        std::uint64_t hits = 0;
        std::uint64_t kept = 0;                // of the hits, those used again
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
    bool narrow_;  // 2 bytes an access hold every batch number
    Phase phase_ = Phase::back;
    std::uint32_t due_;
    std::uint64_t filled_ = 0;
    std::vector<std::uint64_t> starts_;          // first access of each batch
    std::vector<std::uint64_t> digests_;         // of each batch's nodes in their order: what is linked holds for these
    PageArray<std::uint16_t> next_narrow_;     // by access: the batch that uses the node next
    PageArray<std::uint32_t> next_wide_;
    PageArray<std::uint32_t> of_node_;         // pass 1 and 2: the first batch that uses it; pass 3: its slot
    PageArray<std::uint32_t> node_in_;         // by slot
    PageArray<std::int32_t> link_;             // by slot: the next slot of its bucket
    PageArray<std::int32_t> free_;             // slots that nobody has, the next one last
    std::uint64_t num_free_ = 0;
    std::vector<Lane> lanes_;
    std::uint64_t held_ = 0;                     // slots in buckets
};

}  // namespace outcore
