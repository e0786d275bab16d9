// Plan of the slots of feature rows for a sequence of mini-batches: a row has a slot from the mini-batch that reads it
// on, and keeps it until its next use where that saves a read and slots suffice (Belady 1966, with bypass). Keeping a
// row depends only on its use and its next use, so rows with the same pair of uses are counted together: deciding takes
// memory by mini-batches squared, not by rows.
#pragma once

#include <string>
#include <vector>

#include "base/team.hpp"

namespace outcore {

struct SlotMisses {
    std::vector<i64> ids;    // ascending
    std::vector<i32> slots;  // slot of each id
};

struct DirectRows {
    std::vector<u32> ids;    // ascending
    std::vector<i32> slots;  // slot of each id
};

class SlotPlanner {
public:
    // window: a slot may be overwritten for mini-batch t once mini-batch t - window has been released.
    // keep: false: rows stay only for the window, and rows of the previous call are not looked up.
    // threads: number of planning threads, the caller included; the plan does not depend on it.
    SlotPlanner(u32 slots, u32 window, bool keep, u32 threads = 1);

    // Gives row nodes[i] slot i for good; before the first plan.
    // Throws std::invalid_argument where a row is repeated, or the rows exceed the slots.
    void pin(std::span<const u32> nodes);

    // Plans mini-batches that follow those of the previous call. `nodes` has the nodes of all mini-batches, `offsets`
    // the begin of each; behind its first seeds[i] nodes, mini-batch i is a few ascending runs.
    // Throws std::invalid_argument where offsets or seeds contradict the nodes, or a window's rows exceed the slots,
    // whose contents are then unchanged. All calls below read `nodes`, until the next plan or `clear`.
    // direct: whether rows for slots that no mini-batch has used yet may be read beforehand (`direct`).
    void plan(std::span<const u32> nodes, Ids offsets, Ids seeds, bool direct = false);

    // Returns the rows to read into their slots before the first mini-batch of the last call: pinned rows in the first
    // call, and rows whose slots were unused. They are no misses.
    DirectRows direct() const;
    // Returns the number of first uses of such rows that lie in the first `slots` slots. They are no hits.
    u64 direct_uses(u32 slots) const;

    // Returns the rows to read for mini-batch i of the last call, and their slots.
    SlotMisses misses(size_t i) const;
    // Returns the slot of each node of mini-batch i.
    std::vector<i32> slots(size_t i) const;

    // Returns the number of rows to read of each mini-batch; `copy_misses` writes their ids in the same order.
    std::vector<i64> miss_counts() const;
    void copy_misses(std::span<u32> to) const;
    // Returns the rows to read in about one of `every` regions of `region_rows` rows, scattered over the table.
    std::vector<i64> sampled_misses(u64 region_rows, u64 every) const;
    // Returns the bytes of mini-batch i's address list in the layout of `packed_layout.py`: arrays `slots`, of its
    // nodes, and `to`, of the rows to read. `write_list` writes the list and returns its XXH3.
    u64 list_bytes(size_t i) const;
    u64 write_list(size_t i, std::span<std::byte> to) const;

    size_t batches() const { return batches_; }
    u64 hits() const { return hits_; }
    u64 carried() const { return carried_; }  // hits on rows of the previous call
    // Forgets the mini-batches of the last call, but not the contents of the slots.
    void clear();

    static u64 bytes(u64 slots, u64 batches, u64 accesses, u32 threads = 1);

private:
    static constexpr u32 none = UINT32_MAX;
    static constexpr u32 tails = 4;  // classes of rows not used again, by uses: 4 or more, 3, 2, 1
    static constexpr u32 fresh_bit = 1U << 31;

    struct Cursor {
        u32 begin, end;
    };

    struct Uses;
    void find_next(Team& team);
    void find_next_of(const Uses& all, u64 first, u64 stop, u64 group, std::vector<u32>& pairs);
    void decide();
    void assign(bool direct);
    void order_misses(Team& team);
    std::string list_header(size_t i) const;
    size_t uses_of(size_t i) const { return static_cast<size_t>(offsets_.at(i + 1) - offsets_.at(i)); }
    size_t misses_of(size_t i) const { return missed_begin_.at(i + 1) - missed_begin_.at(i); }
    u32 batch_of(u32 access) const;
    size_t pair_at(i64 from, u32 to) const { return static_cast<size_t>(from + window_) * columns_ + to; }
    u32& pair(i64 from, u32 to) { return pairs_[pair_at(from, to)]; }

    u32 slots_, window_;
    bool keep_;
    u32 threads_;
    u32 pinned_ = 0;  // the first slots, whose rows stay
    bool pins_to_read_ = false;
    // Kept across calls: the node in each slot, and the first mini-batch of the next call that may overwrite it.
    std::vector<u32> held_;
    std::vector<u32> free_at_;

    std::span<const u32> nodes_;
    std::vector<i64> offsets_;
    Ids seeds_;
    u32 batches_ = 0, columns_ = 0;
    std::vector<u32> next_;       // by access: next access of its row, or none - 1 - class (see `tails`)
    std::vector<u32> held_next_;  // by slot: first access of the row that it holds
    std::vector<u32> place_;      // by access: its slot, with fresh_bit for a row to read
    std::vector<u32> pairs_;      // [from + window, to]: rows used by `from`, next by `to`; later: rows kept
    std::vector<u32> coarse_;
    std::vector<u32> missed_;  // accesses whose rows are read, by mini-batch, then node
    std::vector<size_t> missed_begin_;
    std::vector<u32> direct_;   // accesses that are the first use of a row that is read beforehand
    bool direct_pins_ = false;  // whether the pinned rows are read before this call's mini-batches
    u64 hits_ = 0, carried_ = 0;
};

}  // namespace outcore
