// File read in pieces in the order of its bytes, several in flight. Only the runs of wanted units (pages, or blocks of
// the device) are read, joined where reading the gap costs less than another request.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "io/range_queue.hpp"

namespace outcore {

struct PieceFileOptions {
    u32 piece_bytes;  // a multiple of the page
    u32 pieces;       // pieces in memory
    u32 depth;        // requests in flight
    u64 end;          // end of the readable bytes of the file
    u64 gap_bytes;    // longest run of unwanted bytes that is read to save a request
    IoChoice choice;
    u32 unit_bytes = 4096;  // granularity of reads; 0: the device's block, within [512, page]
    u64 whole_bytes = 0;    // of a piece with a wanted unit, read wanted or not, from its beginning on
};

class PieceFile {
public:
    // Requests of at least this many bytes begin at a page, unless an earlier request has read a part of it: a device
    // reads long requests up to a third slower into the midst of a page.
    static constexpr u64 long_bytes = 32 << 10;
    using Units = std::vector<u64>;  // a bit for each unit of a piece

    struct Read {
        u64 base = 0;  // byte of the file at which the piece's memory begins
        std::byte* memory = nullptr;
        std::vector<RangeQueue::Ticket> tickets;
    };

    // Throws std::system_error, std::invalid_argument, std::runtime_error (io_uring is needed and unavailable).
    PieceFile(const std::string& path, const PieceFileOptions& options)
        : options_(options),
          memory_(static_cast<size_t>(options.pieces) * options.piece_bytes),
          queue_(path, {options.depth, std::max<u32>(options.piece_bytes, 1 << 20), options.choice}),
          unit_(options.unit_bytes > 0 ? options.unit_bytes : std::clamp<u64>(queue_.block_bytes(), 512, page_bytes)) {
        for (u32 i = 0; i < options.pieces; ++i) free_.push_back(memory_.data() + size_t{i} * options.piece_bytes);
    }

    static void mark(Units& units, u64 unit) { units[unit / 64] |= u64{1} << (unit % 64); }
    static bool marked(const Units& units, u64 unit) { return (units[unit / 64] >> (unit % 64) & 1) != 0; }

    bool has_room() const { return !free_.empty(); }
    u64 bytes() const { return memory_.size(); }
    u64 unit_bytes() const { return unit_; }

    // Queues reads of the wanted units of the piece at byte `base` of the file, a multiple of the page.
    Read begin(u64 base, const Units& units, RequestCounts& reads) {
        Read read{base, free_.back(), {}};
        free_.pop_back();
        const u64 one = options_.piece_bytes;
        const u64 count = std::min<u64>(one / unit_, (options_.end - base + unit_ - 1) / unit_);
        const u64 gap = options_.gap_bytes / unit_;
        const bool any = std::ranges::any_of(units, [](u64 word) { return word != 0; });
        const u64 whole = any ? std::min(count, options_.whole_bytes / unit_) : 0;
        const auto asked = [&](u64 unit) { return unit < whole || marked(units, unit); };
        u64 behind = 0;  // end of the last request, in units
        for (u64 unit = 0; unit < count;) {
            if (!asked(unit)) {
                ++unit;
                continue;
            }
            u64 stop = unit + 1, wanted = marked(units, unit) ? 1 : 0;
            for (u64 next = stop; next < count && next - stop <= gap; ++next) {
                if (!asked(next)) continue;
                stop = next + 1;
                wanted += marked(units, next) ? 1 : 0;
            }
            const u64 page = unit * unit_ / page_bytes * (page_bytes / unit_);
            if ((stop - unit) * unit_ >= long_bytes && page >= behind) unit = page;
            const u64 offset = base + unit * unit_;
            const u64 need = std::min(base + stop * unit_, options_.end) - offset;
            read.tickets.push_back(queue_.submit(offset, need, {read.memory + unit * unit_, one - unit * unit_}));
            // The last unit of a file is read as far as the file goes, in blocks of the device.
            const u64 bytes = up_to(need, queue_.block_bytes());
            reads.add(bytes, bytes);
            reads.bytes_useful += wanted * unit_;
            unit = behind = stop;
        }
        return read;
    }

    // Waits for the piece; returns the failure nearest the file's start.
    std::optional<IoFailure> wait(const Read& read) {
        std::optional<IoFailure> first;
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
    u64 unit_;
};

}  // namespace outcore
