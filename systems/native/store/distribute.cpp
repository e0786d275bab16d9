// One thread walks the table, fills buffers and queues full ones for writing, so that reads, copies and writes overlap.
#include "store/distribute.hpp"

#include "base/refuse.hpp"
#include "store/spread.hpp"

namespace outcore {
namespace {

constexpr u64 most_region = u64{1} << 30;

// Places in a chunk's ids.
struct Cursor {
    u64 marked, copied;  // next id to request, next id to copy
};

u64 region_rows(const DistributeOptions& options, u64 row_bytes) {
    const u64 rows = std::max<u64>(1, options.region_bytes / row_bytes);
    // Regions that begin at page boundaries share no page.
    const u64 whole = page_bytes % row_bytes == 0 ? page_bytes / row_bytes : 1;
    return std::max<u64>(1, rows / whole) * whole;
}

u64 region_memory(const DistributeOptions& options, u64 row_bytes) {
    return padded(region_rows(options, row_bytes) * row_bytes) + 2 * page_bytes;
}

}  // namespace

u64 distribute_bytes(const DistributeOptions& options, u64 row_bytes, u64 chunks) {
    return options.regions * region_memory(options, row_bytes) +
           (chunks + 2 * options.writers) * u64{options.buffer_bytes} + chunks * (sizeof(Cursor) + sizeof(Xxh3Stream)) +
           options.writers * (u64{128} << 10);
}

DistributeResult distribute(const PackSource& table, const std::string& file, std::span<const PackChunk> chunks,
                            std::span<const u32> ids, const DistributeOptions& options, const std::atomic<bool>& stop,
                            const KeptRows& kept) {
    if (options.buffer_bytes == 0 || options.buffer_bytes % page_bytes != 0 || options.writers == 0 ||
        options.regions == 0 || table.row_bytes == 0)
        throw std::invalid_argument("buffers are whole pages; there are writers, regions and bytes in a row");
    check_chunks(table, 1, chunks, ids.size());
    if (region_memory(options, table.row_bytes) > most_region)
        throw std::invalid_argument("regions have at most 1 GiB");
    DistributeResult result;
    std::vector<Cursor> cursors;
    std::vector<Spread::Bounds> bounds;
    for (size_t c = 0; c < chunks.size(); ++c) {
        const PackChunk& chunk = chunks[c];
        for (u64 i = chunk.begin; i < chunk.end; ++i) {
            checked_row(ids[i], table.num_rows);
            if (i > chunk.begin && ids[i] <= ids[i - 1])
                throw std::invalid_argument("the ids of a chunk do not ascend");
        }
        cursors.push_back({chunk.begin, chunk.begin});
        bounds.push_back({chunk.offset, chunk.offset + padded((chunk.end - chunk.begin) * table.row_bytes)});
    }
    for (size_t i = 0; i < kept.ids.size(); ++i) {
        checked_row(kept.ids[i], table.num_rows);
        if (i > 0 && kept.ids[i] < kept.ids[i - 1]) throw std::invalid_argument("the kept ids do not ascend");
    }
    if (!kept.ids.empty() && (kept.room.num_rows == 0 || kept.room.row_bytes != table.row_bytes))
        throw std::invalid_argument("kept rows need room for one row");
    Cursor keep{0, 0};
    u64 given = 0;  // kept rows that were taken away
    const auto give = [&] {
        if (keep.copied > given) kept.give(given, keep.copied - given);
        given = keep.copied;
    };
    const u64 rows = region_rows(options, table.row_bytes), memory = region_memory(options, table.row_bytes);
    PieceFile source(table.path, {static_cast<u32>(memory), options.regions, options.depth,
                                  table.row_offset(table.num_rows), options.gap_bytes, options.choice, 0});
    const u64 unit = source.unit_bytes();
    Spread spread(file, bounds, {options.buffer_bytes, options.writers, options.choice}, true);
    struct Asked {
        u64 last;  // first row after the region
        PieceFile::Read read;
    };
    std::deque<Asked> asked;
    u64 next = 0;  // first row not requested yet
    PieceFile::Units units(memory / unit / 64 + 1);
    for (;;) {
        while (next < table.num_rows && source.has_room()) {
            // Skip regions without a wanted row.
            u64 first = table.num_rows;
            for (size_t c = 0; c < chunks.size(); ++c)
                if (cursors[c].marked < chunks[c].end) first = std::min<u64>(first, ids[cursors[c].marked]);
            if (keep.marked < kept.ids.size()) first = std::min<u64>(first, kept.ids[keep.marked]);
            if (first == table.num_rows) {
                next = first;
                break;
            }
            next = first / rows * rows;
            const u64 last = std::min(table.num_rows, next + rows),
                      base = table.row_offset(next) / page_bytes * page_bytes;
            std::fill(units.begin(), units.end(), 0);
            const auto mark = [&](u64 row, u64 count) {
                const u64 at = table.row_offset(row) - base;
                for (u64 u = at / unit; u <= (at + count * table.row_bytes - 1) / unit; ++u) PieceFile::mark(units, u);
            };
            for (size_t c = 0; c < chunks.size(); ++c)
                for (u64& marked = cursors[c].marked; marked < chunks[c].end && ids[marked] < last; ++marked)
                    mark(ids[marked], 1);
            for (; keep.marked < kept.ids.size() && kept.ids[keep.marked] < last; ++keep.marked)
                mark(kept.ids[keep.marked], 1);
            if (options.whole) mark(next, last - next);
            asked.push_back({last, source.begin(base, units, result.reads)});
            next = last;
        }
        if (asked.empty()) break;
        const Asked region = std::move(asked.front());
        asked.pop_front();
        const auto failure = source.wait(region.read);
        if (failure) {
            result.failure = DistributeFailure{failure->code, false, failure->offset};
            break;
        }
        if (stop) throw std::runtime_error("distributing was stopped");
        if (spread.failure()) break;
        const auto row_at = [&](u32 id) { return region.read.memory + (table.row_offset(id) - region.read.base); };
        for (size_t c = 0; c < chunks.size(); ++c) {
            for (u64& copied = cursors[c].copied; copied < chunks[c].end && ids[copied] < region.last; ++copied) {
                spread.append(c, {row_at(ids[copied]), table.row_bytes});
                if (copied + 1 == chunks[c].end) spread.close(c);
            }
        }
        while (keep.copied < kept.ids.size() && kept.ids[keep.copied] < region.last) {
            std::memcpy(kept.room.row(keep.copied - given), row_at(kept.ids[keep.copied]), table.row_bytes);
            if (++keep.copied - given == kept.room.num_rows) give();
        }
        source.give_back(region.read);
    }
    if (!result.failure && !spread.failure()) give();
    const auto failure = spread.drain();
    result.writes = spread.writes();
    result.bytes_written = spread.bytes_written();
    if (failure && !result.failure) result.failure = DistributeFailure{failure->code, true, failure->offset};
    for (size_t c = 0; c < chunks.size(); ++c)
        result.digests.push_back(chunks[c].empty() || result.failure ? 0 : spread.digest(c));
    return result;
}

}  // namespace outcore
