// The planner: radix sort of the ids, then one pass that joins covering block ranges.
#include "read/read_plan.hpp"

#include <numeric>

#include "base/radix.hpp"
#include "base/refuse.hpp"

namespace outcore {

void check_table(u64 data_offset, u64 num_rows, u64 row_bytes) {
    constexpr u64 most = u64{1} << 62;
    if (row_bytes == 0) throw std::invalid_argument("row_bytes must be positive");
    if (row_bytes > (1U << 30)) throw std::invalid_argument("rows of more than 1 GiB");
    if (data_offset > most || num_rows > (most - data_offset) / row_bytes)
        refuse<std::invalid_argument>("no file holds ", num_rows, " rows of ", row_bytes, " bytes from byte ",
                                      data_offset, " on");
}

u64 ReadPlan::covering_bytes(const RowLayout& layout) {
    // Rows begin at data_offset + i * row_bytes, so their distance to a block boundary is a multiple of `step` plus
    // that of row 0; the worst row begins as late in its block as that allows.
    const u64 block = layout.block_bytes;
    const u64 step = std::gcd(layout.row_bytes, block);
    const u64 latest = block - step + layout.data_offset % step;
    return up_to(latest + layout.row_bytes, block);
}

void ReadPlan::sort_rows(u64 largest_id) {
    if (std::ranges::is_sorted(rows_, {}, &RowRef::id)) return;
    if (rows_.size() < 256) std::ranges::stable_sort(rows_, {}, &RowRef::id);
    else radix_sort(rows_, scratch_, largest_id, [](const RowRef& row) { return static_cast<u64>(row.id); });
}

void ReadPlan::build(Ids ids, const RowLayout& layout, const MergeRule& rule, u32 group_rows) {
    if (ids.size() > UINT32_MAX) throw std::length_error("more than 2^32 rows in one read");
    rows_.clear();
    requests_.clear();
    counts_ = {};
    rows_.reserve(ids.size());
    requests_.reserve(ids.size());  // address space; only what is used becomes memory
    u64 largest = 0;
    for (u32 i = 0; i < ids.size(); ++i) {
        largest = std::max(largest, checked_row(ids[i], layout.num_rows));
        rows_.push_back({ids[i], i});
    }
    if (rule.merge) sort_rows(largest);

    const u64 block = layout.block_bytes;
    const u64 limit = std::max(rule.max_request_bytes, covering_bytes(layout));
    u64 begin = 0;
    u64 end = 0;       // end of the request being grown
    u64 rows_end = 0;  // end of its last row
    u32 first = 0;
    const auto close = [&](u32 next) {
        if (next == first) return;
        requests_.push_back(
            {begin, static_cast<u32>(end - begin), static_cast<u32>(rows_end - begin), first, next - first});
        counts_.add(end - begin, layout.there(begin, end - begin));
        first = next;
    };
    i64 previous = -1;
    for (u32 i = 0; i < rows_.size(); ++i) {
        const u64 start = layout.row_offset(rows_[i].id);
        const u64 stop = start + layout.row_bytes;
        const u64 block_start = start / block * block;
        const u64 block_stop = up_to(stop, block);
        const bool open = i > first && !(group_rows > 0 && i % group_rows == 0);
        const bool joins =
            open && rule.merge && block_start <= end + rule.gap_bytes && std::max(end, block_stop) - begin <= limit;
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
    close(static_cast<u32>(rows_.size()));
    counts_.rows = ids.size();
    counts_.bytes_useful = counts_.unique_rows * layout.row_bytes;
}

}  // namespace outcore
