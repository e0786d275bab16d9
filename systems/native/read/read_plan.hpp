// Plan of the read requests for row ids: sort, drop duplicates, merge neighbours. Pure: uses no file and no ring.
#pragma once

#include <algorithm>
#include <vector>

#include "io/backend.hpp"

namespace outcore {

struct RowLayout {
    u64 data_offset;  // byte of row 0 in the file
    u64 num_rows, row_bytes, file_bytes;
    u32 block_bytes;  // requests begin and end at multiples of the block

    u64 row_offset(i64 id) const { return data_offset + static_cast<u64>(id) * row_bytes; }
    // Returns how many of the bytes [offset, offset + length) the file has.
    u64 there(u64 offset, u64 length) const { return std::min(length, file_bytes > offset ? file_bytes - offset : 0); }
};

// Throws std::invalid_argument for rows that no file can hold, so that no later offset or buffer size overflows.
void check_table(u64 data_offset, u64 num_rows, u64 row_bytes);

struct MergeRule {
    bool merge = true;  // false: one request for each id, duplicates included, in the order given
    u64 max_request_bytes = 131072;
    u64 gap_bytes = 0;  // read up to this many unwanted bytes to join two requests
};

struct RowRef {
    i64 id;
    u32 position;  // index of the id in the caller's ids
};

struct Request {
    u64 offset;
    u32 length;     // multiple of the block
    u32 need;       // bytes from `offset` to the end of the last row; the file may end after them
    u32 first_row;  // index in ReadPlan::rows
    u32 num_rows;
};

struct ReadCounts : RequestCounts {  // useful: the bytes of the rows read, each row once
    u64 rows = 0;                    // ids asked for
    u64 unique_rows = 0;             // rows read
};

class ReadPlan {
public:
    // Plans the reads of `ids`. group_rows > 0: no request crosses a multiple of it in `rows`, so that each group
    // completes by itself. Throws std::out_of_range for an id outside [0, num_rows), std::length_error beyond 2^32 ids.
    void build(Ids ids, const RowLayout& layout, const MergeRule& rule, u32 group_rows = 0);

    std::span<const RowRef> rows() const { return rows_; }
    std::span<const Request> requests() const { return requests_; }
    const ReadCounts& counts() const { return counts_; }

    // Returns the bytes that a plan over `num_ids` may take.
    static u64 bytes(u64 num_ids) { return num_ids * (2 * sizeof(RowRef) + sizeof(Request)); }
    // Returns the length of the longest request that one row alone may need.
    static u64 covering_bytes(const RowLayout& layout);

private:
    void sort_rows(u64 largest_id);

    std::vector<RowRef> rows_, scratch_;
    std::vector<Request> requests_;
    ReadCounts counts_;
};

}  // namespace outcore
