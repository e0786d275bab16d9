// Plan of the read requests for row ids: sort, drop duplicates, merge neighbours. Pure: uses no file and no ring.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace outcore {

struct RowLayout {
    std::uint64_t data_offset;  // byte of row 0 in the file
    std::uint64_t num_rows;
    std::uint64_t row_bytes;
    std::uint64_t file_bytes;
    std::uint32_t block_bytes;  // requests begin and end at multiples of the block

    std::uint64_t row_offset(std::int64_t id) const { return data_offset + static_cast<std::uint64_t>(id) * row_bytes; }
};

// Throws std::invalid_argument for rows that no file can hold, so that no later offset or buffer size overflows.
void check_table(std::uint64_t data_offset, std::uint64_t num_rows, std::uint64_t row_bytes);

struct MergeRule {
    bool merge = true;  // false: one request for each id, duplicates included, in the order given
    std::uint64_t max_request_bytes = 131072;
    std::uint64_t gap_bytes = 0;  // read up to this many unwanted bytes to join two requests
};

struct RowRef {
    std::int64_t id;
    std::uint32_t position;  // index of the id in the caller's ids
};

struct Request {
    std::uint64_t offset;
    std::uint32_t length;     // multiple of the block
    std::uint32_t need;       // bytes from `offset` to the end of the last row; the file may end after them
    std::uint32_t first_row;  // index in ReadPlan::rows
    std::uint32_t num_rows;
};

struct ReadCounts {
    std::uint64_t requests = 0;
    std::uint64_t bytes_read = 0;    // returned by the requests
    std::uint64_t bytes_useful = 0;  // bytes of the rows read, each row once
    std::uint64_t rows = 0;          // ids asked for
    std::uint64_t unique_rows = 0;   // rows read
    std::map<std::uint32_t, std::uint64_t> requests_by_size;
};

class ReadPlan {
public:
    // Plans the reads of `ids`. group_rows > 0: no request crosses a multiple of it in `rows`, so that each group
    // completes by itself. Throws std::out_of_range for an id outside [0, num_rows), std::length_error beyond 2^32 ids.
    void build(std::span<const std::int64_t> ids, const RowLayout& layout, const MergeRule& rule,
               std::uint32_t group_rows = 0);

    std::span<const RowRef> rows() const { return rows_; }
    std::span<const Request> requests() const { return requests_; }
    const ReadCounts& counts() const { return counts_; }

    // Returns the bytes that a plan over `num_ids` may take.
    static std::uint64_t bytes(std::uint64_t num_ids) { return num_ids * (2 * sizeof(RowRef) + sizeof(Request)); }
    // Returns the length of the longest request that one row alone may need.
    static std::uint64_t covering_bytes(const RowLayout& layout);

private:
    void sort_rows(std::uint64_t largest_id);
    void count_request(const Request& request, const RowLayout& layout);

    std::vector<RowRef> rows_;
    std::vector<RowRef> scratch_;
    std::vector<Request> requests_;
    ReadCounts counts_;
};

}  // namespace outcore
