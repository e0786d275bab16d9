// A cache in which every miss inserts the row and, where the cache is full, evicts others: the slots of its rows, and
// look-ups of whole mini-batches. A policy is one file of this folder:
//   Policy(num_rows, capacity)       an empty cache
//   hit(slot, row)                   a cached row is used
//   insert(slot, row)                a missed row enters
//   evict(row_of, freed)             a full cache adds the slots of one row or more to the empty list `freed`
//   slot_bytes, row_bytes            memory that it takes for a slot, and for a row of the table
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "cache/policies.hpp"

namespace outcore {

// Look-up of a mini-batch. Copy the hits out of the cache first, then the admitted rows into it: the slot of a hit may
// be given to an admitted row.
struct DemandLookup {
    std::vector<i32> hits;       // positions of cached rows, ascending
    std::vector<i32> hit_slots;  // slot of each
    std::vector<i64> misses;     // positions of the others, ascending
    std::vector<i32> admitted;   // positions of misses that the cache holds after the mini-batch, ascending
    std::vector<i32> into;       // slot of each
};

class DemandCache {
public:
    virtual ~DemandCache() = default;

    // Uses the rows in their order, each at most once, and inserts the misses. Throws std::out_of_range for a row that
    // the table does not have; nothing is changed then.
    virtual DemandLookup look_up(Ids rows) = 0;

    // Makes an empty cache. Throws std::invalid_argument for an unknown policy.
    static std::unique_ptr<DemandCache> make(std::string_view policy, u32 num_rows, u32 capacity);
    // Returns the bytes of memory for each slot, and for each row of the table.
    static std::pair<size_t, size_t> bytes(std::string_view policy);
};

}  // namespace outcore
