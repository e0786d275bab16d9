// The planner: radix sort of the ids, then one pass that joins covering block ranges.
#include "read_plan.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace outcore {

void check_table(std::uint64_t data_offset, std::uint64_t num_rows, std::uint64_t row_bytes) {
    constexpr std::uint64_t most = std::uint64_t{1} << 62;
    if (row_bytes == 0) throw std::invalid_argument("row_bytes must be positive");
    if (row_bytes > (1U << 30)) throw std::invalid_argument("rows of more than 1 GiB");
    if (data_offset > most || num_rows > (most - data_offset) / row_bytes)
        throw std::invalid_argument("no file holds " + std::to_string(num_rows) + " rows of " + std::to_string(row_bytes) +
                                    " bytes from byte " + std::to_string(data_offset) + " on");
}

std::uint64_t ReadPlan::covering_bytes(const RowLayout& layout) {
    // Rows begin at data_offset + i * row_bytes, so their distance to a block boundary is a multiple of `step` plus
    // that of row 0; the worst row begins as late in its block as that allows.
    const std::uint64_t block = layout.block_bytes;
    const std::uint64_t step = std::gcd(layout.row_bytes, block);
    const std::uint64_t latest = block - step + layout.data_offset % step;
    return (latest + layout.row_bytes + block - 1) / block * block;
}

void ReadPlan::sort_rows(std::uint64_t largest_id) {
    const auto by_id = [](const RowRef& a, const RowRef& b) { return a.id < b.id; };
    if (std::is_sorted(rows_.begin(), rows_.end(), by_id)) return;
    if (rows_.size() < 256) {
        std::stable_sort(rows_.begin(), rows_.end(), by_id);
        return;
    }
    constexpr int digit_bits = 11;
    scratch_.resize(rows_.size());
    const int bits = static_cast<int>(std::bit_width(largest_id));
    for (int shift = 0; shift < bits; shift += digit_bits) {
        std::array<std::uint32_t, 1 << digit_bits> begin{};
        const auto digit = [shift](const RowRef& row) {
            return (static_cast<std::uint64_t>(row.id) >> shift) & ((1U << digit_bits) - 1);
        };
        for (const auto& row : rows_) ++begin[digit(row)];
        std::uint32_t sum = 0;
        for (auto& count : begin) sum += std::exchange(count, sum);
        for (const auto& row : rows_) scratch_[begin[digit(row)]++] = row;
        rows_.swap(scratch_);
    }
}

void ReadPlan::count_request(const Request& request, const RowLayout& layout) {
    ++counts_.requests;
    const std::uint64_t there = layout.file_bytes > request.offset ? layout.file_bytes - request.offset : 0;
    counts_.bytes_read += std::min<std::uint64_t>(request.length, there);
    ++counts_.requests_by_size[request.length];
}

void ReadPlan::build(std::span<const std::int64_t> ids, const RowLayout& layout, const MergeRule& rule,
                     std::uint32_t group_rows) {
    if (ids.size() > UINT32_MAX) throw std::length_error("more than 2^32 rows in one read");
    rows_.clear();
    requests_.clear();
    counts_ = {};
    rows_.reserve(ids.size());
    requests_.reserve(ids.size());  // address space; only what is used becomes memory
    std::uint64_t largest = 0;
    for (std::uint32_t i = 0; i < ids.size(); ++i) {
        const auto id = static_cast<std::uint64_t>(ids[i]);
        if (id >= layout.num_rows) {
            throw std::out_of_range("row " + std::to_string(ids[i]) + " of a table of " +
                                    std::to_string(layout.num_rows) + " rows");
        }
        largest = std::max(largest, id);
        rows_.push_back({ids[i], i});
    }
    if (rule.merge) sort_rows(largest);

    const std::uint64_t block = layout.block_bytes;
    const std::uint64_t limit = std::max(rule.max_request_bytes, covering_bytes(layout));
    std::uint64_t begin = 0;
    std::uint64_t end = 0;       // end of the request being grown
    std::uint64_t rows_end = 0;  // end of its last row
    std::uint32_t first = 0;
    const auto close = [&](std::uint32_t next) {
        if (next == first) return;
        requests_.push_back({begin, static_cast<std::uint32_t>(end - begin), static_cast<std::uint32_t>(rows_end - begin),
                             first, next - first});
        count_request(requests_.back(), layout);
        first = next;
    };
    std::int64_t previous = -1;
    for (std::uint32_t i = 0; i < rows_.size(); ++i) {
        const std::uint64_t start = layout.row_offset(rows_[i].id);
        const std::uint64_t stop = start + layout.row_bytes;
        const std::uint64_t block_start = start / block * block;
        const std::uint64_t block_stop = (stop + block - 1) / block * block;
        const bool open = i > first && !(group_rows > 0 && i % group_rows == 0);
        const bool joins = open && rule.merge && block_start <= end + rule.gap_bytes &&
                           std::max(end, block_stop) - begin <= limit;
        if (!joins) {
            close(i);
            begin = block_start;
            end = block_stop;
            rows_end = stop;
        } else {
            end = std::max(end, block_stop);
            rows_end = std::max(rows_end, stop);
        }
        if (!rule.merge || rows_[i].id != previous || !joins) ++counts_.unique_rows;
        previous = rows_[i].id;
    }
    close(static_cast<std::uint32_t>(rows_.size()));
    counts_.rows = ids.size();
    counts_.bytes_useful = counts_.unique_rows * layout.row_bytes;
}

}  // namespace outcore
