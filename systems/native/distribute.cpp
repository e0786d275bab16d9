// One thread walks the table, fills buffers and queues full ones for writing, so that reads, copies and writes overlap.
#include "distribute.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <stdexcept>

#include "direct_writers.hpp"
#include "read_plan.hpp"
#include "xxh3.hpp"

namespace outcore {
namespace {

constexpr std::uint64_t page_bytes = PieceFile::page_bytes;
constexpr std::uint64_t most_file = std::uint64_t{1} << 62;
constexpr std::uint64_t most_region = std::uint64_t{1} << 30;
constexpr std::uint64_t first_writes = 8;  // distinct lengths, so that equal chunks do not fill at the same time

std::uint64_t padded(std::uint64_t bytes) { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }

struct State {
    std::uint64_t marked, cursor;  // next id to request, next id to copy
    std::uint64_t at;              // file offset where the buffer will be written
    std::byte* buffer = nullptr;
    std::uint64_t fill = 0, room = 0;
    Xxh3Stream digest;
};

std::uint64_t region_rows(const DistributeOptions& options, std::uint64_t row_bytes) {
    const std::uint64_t rows = std::max<std::uint64_t>(1, options.region_bytes / row_bytes);
    // Regions that begin at page boundaries share no page.
    const std::uint64_t whole = page_bytes % row_bytes == 0 ? page_bytes / row_bytes : 1;
    return std::max<std::uint64_t>(1, rows / whole) * whole;
}

std::uint64_t region_memory(const DistributeOptions& options, std::uint64_t row_bytes) {
    return padded(region_rows(options, row_bytes) * row_bytes) + 2 * page_bytes;
}

}  // namespace

std::uint64_t distribute_bytes(const DistributeOptions& options, std::uint64_t row_bytes, std::uint64_t chunks) {
    return options.regions * region_memory(options, row_bytes) + (chunks + 2 * options.writers) * std::uint64_t{options.buffer_bytes} +
           chunks * sizeof(State) + options.writers * (std::uint64_t{128} << 10);
}

DistributeResult distribute(const DistributeTable& table, const std::string& file, std::span<const DistributeChunk> chunks,
                            std::span<const std::uint32_t> ids, const DistributeOptions& options, const std::atomic<bool>& stop) {
    if (options.buffer_bytes == 0 || options.buffer_bytes % page_bytes != 0 || options.writers == 0 || options.regions == 0 || table.row_bytes == 0)
        throw std::invalid_argument("buffers are whole pages; there are writers, regions and bytes in a row");
    check_table(table.data_offset, table.num_rows, table.row_bytes);
    if (region_memory(options, table.row_bytes) > most_region) throw std::invalid_argument("regions have at most 1 GiB");
    DistributeResult result;
    std::vector<State> states(chunks.size());
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        const DistributeChunk& chunk = chunks[c];
        if (chunk.offset > most_file || ids.size() > most_file / table.row_bytes || chunk.begin > chunk.end || chunk.end > ids.size() || chunk.offset % page_bytes != 0)
            throw std::invalid_argument("a chunk lies outside its ids, or is not aligned");
        for (std::uint64_t i = chunk.begin; i < chunk.end; ++i) {
            if (ids[i] >= table.num_rows) throw std::out_of_range("row " + std::to_string(ids[i]) + " of a table of " + std::to_string(table.num_rows) + " rows");
            if (i > chunk.begin && ids[i] <= ids[i - 1]) throw std::invalid_argument("the ids of a chunk do not ascend");
        }
        State& state = states[c];
        state.marked = state.cursor = chunk.begin;
        state.at = chunk.offset;
        const std::uint64_t bytes = padded((chunk.end - chunk.begin) * table.row_bytes);
        if (bytes > 0) state.digest = Xxh3Stream(bytes);
        state.room = std::min<std::uint64_t>(bytes, options.buffer_bytes);
        if (bytes > options.buffer_bytes) state.room = padded(options.buffer_bytes * (1 + c % first_writes) / first_writes);
    }
    const std::uint64_t rows = region_rows(options, table.row_bytes), memory = region_memory(options, table.row_bytes);
    const auto row_at = [&](std::uint64_t row) { return table.data_offset + row * table.row_bytes; };
    PieceFile source(table.path, {static_cast<std::uint32_t>(memory), options.regions, options.depth, row_at(table.num_rows),
                                  options.gap_bytes, options.want_ring, options.need_ring, 0});
    const std::uint64_t unit = source.unit_bytes();
    DirectWriters writers(file, {options.buffer_bytes, options.writers, options.want_ring, options.need_ring},
                          chunks.size() + 2 * std::uint64_t{options.writers});
    const auto flush = [&](State& state, std::uint64_t bytes) {
        state.digest.update(state.buffer, bytes);
        writers.write(state.buffer, bytes, state.at);
        ++result.writes;
        result.bytes_written += bytes;
        state.at += bytes;
        state.buffer = nullptr;
        state.fill = 0;
        state.room = options.buffer_bytes;
    };
    struct Asked {
        std::uint64_t last;  // first row after the region
        PieceFile::Read read;
    };
    std::deque<Asked> asked;
    std::uint64_t next = 0;  // first row not requested yet
    PieceFile::Units units(memory / unit / 64 + 1);
    for (;;) {
        while (next < table.num_rows && source.has_room()) {
            // Skip regions without a wanted row.
            std::uint64_t first = table.num_rows;
            for (std::size_t c = 0; c < chunks.size(); ++c)
                if (states[c].marked < chunks[c].end) first = std::min<std::uint64_t>(first, ids[states[c].marked]);
            if (first == table.num_rows) {
                next = first;
                break;
            }
            next = first / rows * rows;
            const std::uint64_t last = std::min(table.num_rows, next + rows), base = row_at(next) / page_bytes * page_bytes;
            std::fill(units.begin(), units.end(), 0);
            for (std::size_t c = 0; c < chunks.size(); ++c) {
                State& state = states[c];
                for (; state.marked < chunks[c].end && ids[state.marked] < last; ++state.marked) {
                    const std::uint64_t at = row_at(ids[state.marked]) - base;
                    for (std::uint64_t u = at / unit; u <= (at + table.row_bytes - 1) / unit; ++u) PieceFile::mark(units, u);
                }
            }
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
        if (writers.failure()) break;
        for (std::size_t c = 0; c < chunks.size(); ++c) {
            State& state = states[c];
            while (state.cursor < chunks[c].end && ids[state.cursor] < region.last) {
                const std::byte* row = region.read.memory + (row_at(ids[state.cursor++]) - region.read.base);
                for (std::uint64_t done = 0; done < table.row_bytes;) {
                    if (state.buffer == nullptr) state.buffer = writers.take();
                    const std::uint64_t part = std::min(table.row_bytes - done, state.room - state.fill);
                    std::memcpy(state.buffer + state.fill, row + done, part);
                    done += part;
                    state.fill += part;
                    if (state.fill == state.room) flush(state, state.fill);
                }
                if (state.cursor == chunks[c].end && state.fill > 0) {
                    const std::uint64_t bytes = padded(state.fill);
                    std::memset(state.buffer + state.fill, 0, bytes - state.fill);
                    flush(state, bytes);
                }
            }
        }
        source.give_back(region.read);
    }
    const auto failure = writers.finish();
    if (failure && !result.failure) result.failure = DistributeFailure{failure->code, true, failure->offset};
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        const bool empty = chunks[c].begin == chunks[c].end;
        result.digests.push_back(empty || result.failure ? 0 : states[c].digest.value());
    }
    return result;
}

}  // namespace outcore
