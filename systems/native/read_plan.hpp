// From row ids to read requests: sort, drop duplicates, merge neighbours. Pure: knows nothing of files or rings.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace outcore {

struct RowLayout {
    std::uint64_t data_offset;  // of row 0 in the file
    std::uint64_t num_rows;
    std::uint64_t row_bytes;
    std::uint64_t file_bytes;
    std::uint32_t block_bytes;  // requests begin and end at multiples of it

    std::uint64_t row_offset(std::int64_t id) const { return data_offset + static_cast<std::uint64_t>(id) * row_bytes; }
};

// Throws std::invalid_argument for rows that no file can hold, so that no offset or buffer size overflows behind.
void check_table(std::uint64_t data_offset, std::uint64_t num_rows, std::uint64_t row_bytes);

struct MergeRule {
    bool merge = true;  // false: one request for each id, duplicates included, in the order given
    std::uint64_t max_request_bytes = 131072;
    std::uint64_t gap_bytes = 0;  // read up to this many unwanted bytes to join two requests
};

struct RowRef {
    std::int64_t id;
    std::uint32_t position;  // in the caller's ids
};

struct Request {
    std::uint64_t offset;
    std::uint32_t length;     // multiple of the block
    std::uint32_t need;       // bytes from `offset` to the end of its last row; what lies behind may be missing at the file's end
    std::uint32_t first_row;  // in ReadPlan::rows
    std::uint32_t num_rows;
};

struct ReadCounts {
    std::uint64_t requests = 0;
    std::uint64_t bytes_read = 0;    // returned by the requests
    std::uint64_t bytes_useful = 0;  // of the rows that they read, each row once
    std::uint64_t rows = 0;          // ids asked for
    std::uint64_t unique_rows = 0;   // rows read
    std::map<std::uint32_t, std::uint64_t> requests_by_size;
};

class ReadPlan {
public:
    // With `group_rows` > 0 no request crosses a multiple of it in `rows`, so that each group completes by itself.
    // Throws std::out_of_range for an id outside [0, num_rows).
    void build(std::span<const std::int64_t> ids, const RowLayout& layout, const MergeRule& rule,
               std::uint32_t group_rows = 0);

    std::span<const RowRef> rows() const { return rows_; }
    std::span<const Request> requests() const { return requests_; }
    const ReadCounts& counts() const { return counts_; }

    // Bytes that a plan over `num_ids` may take.
    static std::uint64_t bytes(std::uint64_t num_ids) { return num_ids * (2 * sizeof(RowRef) + sizeof(Request)); }
    // Length of the longest request that one row alone may need.
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
