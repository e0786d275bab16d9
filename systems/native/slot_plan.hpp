// Where the rows of a sequence of mini-batches lie in a table of slots, decided beforehand: each row from the mini-batch that
// reads it on, and from one use to the next where that saves a read and there is room (Belady 1966, with bypass).
// Whether a row is kept depends on nothing but when it is used next, so rows with the same pair of uses are counted
// together: deciding takes memory by mini-batches squared, not by rows.
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
    std::vector<std::int32_t> slots;   // of each
};

class SlotPlanner {
public:
    // `window`: a slot may be overwritten for mini-batch t once mini-batch t - window has been released.
    // `keep`: false: rows stay only for the window, and rows of the call before are not looked for.
    // `threads` plan, the caller among them; how many changes nothing of the plan.
    SlotPlanner(std::uint32_t slots, std::uint32_t window, bool keep, std::uint32_t threads = 1);

    // Plans these mini-batches, which follow on those of the call before. `nodes` are those of all of them one after
    // the other, `offsets` where each begins; each is a few ascending runs but for its first `seeds[i]` nodes.
    // Throws std::invalid_argument where offsets or seeds contradict the nodes, or a window's rows do not fit the slots; what the
    // slots hold has not changed then. `nodes` are read by all calls below, until the next plan or `clear`.
    void plan(std::span<const std::uint32_t> nodes, std::span<const std::int64_t> offsets, std::span<const std::int64_t> seeds);

    // Rows that have to be read for mini-batch i of the last call, and where to.
    SlotMisses misses(std::size_t i) const;
    // The slot of each of its nodes.
    std::vector<std::int32_t> slots(std::size_t i) const;

    // Rows that have to be read, of all mini-batches: how many of each, and their ids one mini-batch after the other.
    std::vector<std::int64_t> miss_counts() const;
    void copy_misses(std::span<std::uint32_t> to) const;
    // Those of them that lie in some regions of the table: of `every` about one, scattered.
    std::vector<std::int64_t> sampled_misses(std::uint64_t region_rows, std::uint64_t every) const;
    // Mini-batch i's address list, laid out as `packed_layout.py` has it: arrays `slots`, of its nodes, and `to`, of the rows
    // that are read. Writing it returns its XXH3.
    std::uint64_t list_bytes(std::size_t i) const;
    std::uint64_t write_list(std::size_t i, std::span<std::byte> to) const;

    std::size_t batches() const { return batches_; }
    std::uint64_t hits() const { return hits_; }
    std::uint64_t carried() const { return carried_; }  // of them from the call before
    // Forgets the mini-batches of the last call, but not what the slots hold.
    void clear();

    static std::uint64_t bytes(std::uint64_t slots, std::uint64_t batches, std::uint64_t accesses, std::uint32_t threads = 1);

private:
    static constexpr std::uint32_t none = UINT32_MAX;
    static constexpr std::uint32_t tails = 4;  // how often a row was used that is not used again: 4 times or more, 3, 2, 1
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
    // Across calls: the node in each slot, and from which mini-batch of the next call on it may be overwritten.
    std::vector<std::uint32_t> held_;
    std::vector<std::uint32_t> free_at_;

    std::span<const std::uint32_t> nodes_;
    std::vector<std::int64_t> offsets_;
    std::span<const std::int64_t> seeds_;
    std::uint32_t batches_ = 0;
    std::uint32_t columns_ = 0;
    std::vector<std::uint32_t> next_;       // by access: the next one of its row, or tail_base + class
    std::vector<std::uint32_t> held_next_;  // by slot: the first access of the row that it holds
    std::vector<std::uint32_t> place_;      // by access: its slot, with fresh_bit where it was read
    std::vector<std::uint32_t> pairs_;      // [from + window, to]: rows used by `from` and next by `to`; then those kept
    std::vector<std::uint32_t> coarse_;
    std::vector<std::uint32_t> missed_;        // accesses that are read, by mini-batch and then by node
    std::vector<std::size_t> missed_begin_;
    std::uint64_t hits_ = 0, carried_ = 0;
};

}  // namespace outcore
