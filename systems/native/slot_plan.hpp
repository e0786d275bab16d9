// Plan of the slots of feature rows for a sequence of mini-batches: a row has a slot from the mini-batch that reads it
// on, and keeps it until its next use where that saves a read and slots suffice (Belady 1966, with bypass). Keeping a
// row depends only on its use and its next use, so rows with the same pair of uses are counted together: deciding takes
// memory by mini-batches squared, not by rows.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "team.hpp"

namespace outcore {

struct SlotMisses {
    std::vector<std::int64_t> ids;     // ascending
    std::vector<std::int32_t> slots;   // slot of each id
};

class SlotPlanner {
public:
    // window: a slot may be overwritten for mini-batch t once mini-batch t - window has been released.
    // keep: false: rows stay only for the window, and rows of the previous call are not looked up.
    // threads: number of planning threads, the caller included; the plan does not depend on it.
    SlotPlanner(std::uint32_t slots, std::uint32_t window, bool keep, std::uint32_t threads = 1);

    // Plans mini-batches that follow those of the previous call. `nodes` has the nodes of all mini-batches, `offsets`
    // the begin of each; behind its first seeds[i] nodes, mini-batch i is a few ascending runs.
    // Throws std::invalid_argument where offsets or seeds contradict the nodes, or a window's rows exceed the slots,
    // whose contents are then unchanged. All calls below read `nodes`, until the next plan or `clear`.
    void plan(std::span<const std::uint32_t> nodes, std::span<const std::int64_t> offsets, std::span<const std::int64_t> seeds);

    // Returns the rows to read for mini-batch i of the last call, and their slots.
    SlotMisses misses(std::size_t i) const;
    // Returns the slot of each node of mini-batch i.
    std::vector<std::int32_t> slots(std::size_t i) const;

    // Returns the number of rows to read of each mini-batch; `copy_misses` writes their ids in the same order.
    std::vector<std::int64_t> miss_counts() const;
    void copy_misses(std::span<std::uint32_t> to) const;
    // Returns the rows to read in about one of `every` regions of `region_rows` rows, scattered over the table.
    std::vector<std::int64_t> sampled_misses(std::uint64_t region_rows, std::uint64_t every) const;
    // Returns the bytes of mini-batch i's address list in the layout of `packed_layout.py`: arrays `slots`, of its
    // nodes, and `to`, of the rows to read. `write_list` writes the list and returns its XXH3.
    std::uint64_t list_bytes(std::size_t i) const;
    std::uint64_t write_list(std::size_t i, std::span<std::byte> to) const;

    std::size_t batches() const { return batches_; }
    std::uint64_t hits() const { return hits_; }
    std::uint64_t carried() const { return carried_; }  // hits on rows of the previous call
    // Forgets the mini-batches of the last call, but not the contents of the slots.
    void clear();

    static std::uint64_t bytes(std::uint64_t slots, std::uint64_t batches, std::uint64_t accesses, std::uint32_t threads = 1);

private:
    static constexpr std::uint32_t none = UINT32_MAX;
    static constexpr std::uint32_t tails = 4;  // classes of rows not used again, by uses: 4 or more, 3, 2, 1
    static constexpr std::uint32_t fresh_bit = 1U << 31;

    struct Cursor {
        std::uint32_t begin, end;
    };

    struct Uses;
    static std::uint32_t parts(std::uint64_t batches, std::uint32_t threads);
    void find_next(Team& team);
    void find_next_of(const Uses& all, std::uint64_t first, std::uint64_t stop, std::uint64_t group, std::vector<std::uint32_t>& pairs);
    void decide();
    void assign();
    void order_misses(Team& team);
    std::string list_header(std::size_t i) const;
    std::size_t uses_of(std::size_t i) const { return static_cast<std::size_t>(offsets_.at(i + 1) - offsets_.at(i)); }
    std::size_t misses_of(std::size_t i) const { return missed_begin_.at(i + 1) - missed_begin_.at(i); }
    std::uint32_t batch_of(std::uint32_t access) const;
    std::size_t pair_at(std::int64_t from, std::uint32_t to) const { return static_cast<std::size_t>(from + window_) * columns_ + to; }
    std::uint32_t& pair(std::int64_t from, std::uint32_t to) { return pairs_[pair_at(from, to)]; }

    std::uint32_t slots_;
    std::uint32_t window_;
    bool keep_;
    std::uint32_t threads_;
    // Kept across calls: the node in each slot, and the first mini-batch of the next call that may overwrite it.
    std::vector<std::uint32_t> held_;
    std::vector<std::uint32_t> free_at_;

    std::span<const std::uint32_t> nodes_;
    std::vector<std::int64_t> offsets_;
    std::span<const std::int64_t> seeds_;
    std::uint32_t batches_ = 0;
    std::uint32_t columns_ = 0;
    std::vector<std::uint32_t> next_;       // by access: next access of its row, or none - 1 - class (see `tails`)
    std::vector<std::uint32_t> held_next_;  // by slot: first access of the row that it holds
    std::vector<std::uint32_t> place_;      // by access: its slot, with fresh_bit for a row to read
    std::vector<std::uint32_t> pairs_;      // [from + window, to]: rows used by `from`, next by `to`; later: rows kept
    std::vector<std::uint32_t> coarse_;
    std::vector<std::uint32_t> missed_;        // accesses whose rows are read, by mini-batch, then node
    std::vector<std::size_t> missed_begin_;
    std::uint64_t hits_ = 0, carried_ = 0;
};

}  // namespace outcore
