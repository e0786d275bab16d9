// File read in pieces in the order of its bytes, several in flight. Only the runs of wanted units (pages, or blocks of
// the device) are read, joined where reading the gap costs less than another request.
#pragma once

#include <cstdint>
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "aligned_memory.hpp"
#include "range_queue.hpp"

namespace outcore {

// Counts of the requests to the disk.
struct PieceReads {
    std::uint64_t requests = 0;
    std::uint64_t bytes_read = 0;
    std::uint64_t bytes_useful = 0;  // bytes of wanted units
    std::map<std::uint64_t, std::uint64_t> by_size;
};

struct PieceFileOptions {
    std::uint32_t piece_bytes;  // a multiple of the page
    std::uint32_t pieces;       // pieces in memory
    std::uint32_t depth;        // requests in flight
    std::uint64_t end;          // end of the readable bytes of the file
    std::uint64_t gap_bytes;    // longest run of unwanted bytes that is read to save a request
    bool want_ring = true;
    bool need_ring = false;
    std::uint32_t unit_bytes = 4096;  // granularity of reads; 0: the device's block, within [512, page]
};

class PieceFile {
public:
    static constexpr std::uint64_t page_bytes = 4096;
    // Requests of at least this many bytes begin at a page, unless an earlier request has read a part of it: a device
    // reads long requests up to a third slower into the midst of a page.
    static constexpr std::uint64_t long_bytes = 32 << 10;
    using Units = std::vector<std::uint64_t>;  // a bit for each unit of a piece

    struct Read {
        std::uint64_t base = 0;       // byte of the file at which the piece's memory begins
        std::byte* memory = nullptr;
        std::vector<RangeQueue::Ticket> tickets;
    };

    // Throws std::system_error, std::invalid_argument, std::runtime_error (need_ring).
    PieceFile(const std::string& path, const PieceFileOptions& options)
        : options_(options),
          memory_(static_cast<std::size_t>(options.pieces) * options.piece_bytes),
          queue_(path, {options.depth, std::max<std::uint32_t>(options.piece_bytes, 1 << 20), options.want_ring, options.need_ring}),
          unit_(options.unit_bytes > 0 ? options.unit_bytes : std::clamp<std::uint64_t>(queue_.block_bytes(), 512, page_bytes)) {
        for (std::uint32_t i = 0; i < options.pieces; ++i) free_.push_back(memory_.data() + std::size_t{i} * options.piece_bytes);
    }

    static void mark(Units& units, std::uint64_t unit) { units[unit / 64] |= std::uint64_t{1} << (unit % 64); }
    static bool marked(const Units& units, std::uint64_t unit) { return (units[unit / 64] >> (unit % 64) & 1) != 0; }

    bool has_room() const { return !free_.empty(); }
    std::uint64_t bytes() const { return memory_.size(); }
    std::uint64_t unit_bytes() const { return unit_; }
    const std::string& mode() const { return queue_.mode(); }

    // Queues reads of the wanted units of the piece at byte `base` of the file, a multiple of the page.
    Read begin(std::uint64_t base, const Units& units, PieceReads& reads) {
        Read read{base, free_.back(), {}};
        free_.pop_back();
        const std::uint64_t one = options_.piece_bytes;
        const std::uint64_t count = std::min<std::uint64_t>(one / unit_, (options_.end - base + unit_ - 1) / unit_);
        const std::uint64_t gap = options_.gap_bytes / unit_;
        std::uint64_t behind = 0;  // end of the last request, in units
        for (std::uint64_t unit = 0; unit < count;) {
            if (!marked(units, unit)) {
                ++unit;
                continue;
            }
            std::uint64_t stop = unit + 1, wanted = 1;
            for (std::uint64_t next = stop; next < count && next - stop <= gap; ++next) {
                if (!marked(units, next)) continue;
                stop = next + 1;
                ++wanted;
            }
            const std::uint64_t page = unit * unit_ / page_bytes * (page_bytes / unit_);
            if ((stop - unit) * unit_ >= long_bytes && page >= behind) unit = page;
            const std::uint64_t offset = base + unit * unit_;
            const std::uint64_t need = std::min(base + stop * unit_, options_.end) - offset;
            read.tickets.push_back(queue_.submit(offset, need, {read.memory + unit * unit_, one - unit * unit_}));
            ++reads.requests;
            // The last unit of a file is read as far as the file goes, in blocks of the device.
            const std::uint64_t bytes = (need + queue_.block_bytes() - 1) / queue_.block_bytes() * queue_.block_bytes();
            reads.bytes_read += bytes;
            reads.bytes_useful += wanted * unit_;
            ++reads.by_size[bytes];
            unit = behind = stop;
        }
        return read;
    }

    // Waits for the piece; returns the failure nearest the file's start.
    std::optional<ReadFailure> wait(const Read& read) {
        std::optional<ReadFailure> first;
        for (const auto ticket : read.tickets) {
            const auto failure = queue_.wait(ticket).failure;
            if (failure && (!first || failure->offset < first->offset)) first = failure;
        }
        return first;
    }

    void give_back(const Read& read) { free_.push_back(read.memory); }

private:
    PieceFileOptions options_;
    AlignedMemory memory_;
    std::vector<std::byte*> free_;
    RangeQueue queue_;  // declared after the memory it reads into: destroyed before it
    std::uint64_t unit_;
};

}  // namespace outcore
