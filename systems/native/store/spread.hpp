// Distribution step of an external sort (Aggarwal and Vitter 1988, Section 3): data appended to a region of a file goes
// through the region's buffer, and a full buffer is one long direct write, while the same thread fills other buffers.
#pragma once

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "base/xxh3.hpp"
#include "io/direct_writers.hpp"
#include "store/edge_run.hpp"

namespace outcore {

class Spread {
public:
    // Bytes [begin, end) of the file, at page boundaries.
    struct Bounds {
        u64 begin, end;
    };
    // Returns the regions [bounds[k], bounds[k + 1]). Throws std::invalid_argument unless they are pages in order.
    static std::vector<Bounds> regions_between(Ids bounds) {
        if (bounds.empty()) throw std::invalid_argument("regions have bounds");
        std::vector<Bounds> regions;
        for (size_t k = 0; k < bounds.size(); ++k) {
            if (bounds[k] < 0 || bounds[k] % static_cast<i64>(page_bytes) != 0 || (k > 0 && bounds[k] < bounds[k - 1]))
                throw std::invalid_argument("regions are whole pages, one behind the other");
            if (k > 0) regions.push_back({static_cast<u64>(bounds[k - 1]), static_cast<u64>(bounds[k])});
        }
        return regions;
    }

    // Opens an existing file; `digest` keeps the XXH3 of each region. Throws std::invalid_argument, std::system_error.
    Spread(const std::string& path, std::span<const Bounds> regions, const DirectWritersOptions& options,
           bool digest = false)
        : buffer_bytes_(options.buffer_bytes),
          writers_(path, options, regions.size() + 2 * u64{options.writers}),
          digests_(digest ? regions.size() : 0) {
        for (size_t k = 0; k < regions.size(); ++k) {
            const auto [begin, end] = regions[k];
            u64 room = buffer_bytes_;
            // First writes differ in length, so that equal regions do not fill at the same time.
            if (end - begin > room) room = padded(room * (1 + k % first_writes) / first_writes);
            regions_.push_back({begin, end, nullptr, 0, room});
        }
    }

    // Returns the bytes of the buffers of `regions` regions.
    static u64 bytes(u64 regions, const DirectWritersOptions& options) {
        return (regions + 2 * u64{options.writers}) * options.buffer_bytes;
    }

    // append, rows and lists throw std::out_of_range for a missing or full region; `finish` returns a failed write.
    void append(size_t index, std::span<const std::byte> data) {
        if (index >= regions_.size()) throw std::out_of_range("a region that is not there");
        Region& region = regions_[index];
        if (data.size() > region.end - region.at - region.fill) throw std::out_of_range("a region is full");
        while (!data.empty()) {
            if (region.buffer == nullptr) region.buffer = writers_.take();
            const u64 part = std::min<u64>(data.size(), region.room - region.fill);
            std::memcpy(region.buffer + region.fill, data.data(), part);
            data = data.subspan(part);
            region.fill += part;
            if (region.fill == region.room) flush(index, region.fill);
        }
    }
    // Appends row i to region regions[i].
    void rows(Table rows, std::span<const u8> regions) {
        if (rows.row_bytes == 0 || rows.num_rows != regions.size())
            throw std::invalid_argument("a region for each row");
        for (size_t i = 0; i < regions.size(); ++i) append(regions[i], {rows.row(i), rows.row_bytes});
    }
    // Appends each neighbour list of a run (see `for_each_list`) to the region of its node.
    template <class Index>
    void lists(Ids indptr, i64 first_node, i64 first_edge, std::span<const Index> sources,
               std::span<const u8> region_of) {
        for_each_list(indptr, first_node, first_edge, sources, region_of.size(),
                      [&](size_t node, std::span<const Index> list) { append(region_of[node], std::as_bytes(list)); });
    }
    // Writes the rest of a region's buffer, padded with zeros to a page.
    void close(size_t index) {
        Region& region = regions_.at(index);
        if (region.fill == 0) return;
        const u64 bytes = padded(region.fill);
        std::memset(region.buffer + region.fill, 0, bytes - region.fill);
        flush(index, bytes);
    }
    // Writes the rest of the buffers, padded with zeros to a page, and waits; returns the first failure.
    std::optional<IoFailure> finish() {
        for (size_t k = 0; k < regions_.size(); ++k) close(k);
        return drain();
    }
    // Waits for the writes queued so far; returns the first failure.
    std::optional<IoFailure> drain() { return writers_.finish(); }

    const std::optional<IoFailure>& failure() const { return writers_.failure(); }
    u64 writes() const { return writes_done_; }
    u64 bytes_written() const { return bytes_written_; }
    u64 digest(size_t region) const { return digests_.at(region).value(); }

private:
    static constexpr u64 first_writes = 8;  // number of different lengths

    struct Region {
        u64 at, end;  // file offsets of the buffer's write and of the region's end
        std::byte* buffer = nullptr;
        u64 fill = 0, room = 0;
    };

    void flush(size_t index, u64 bytes) {
        Region& region = regions_[index];
        if (!digests_.empty()) digests_[index].update(region.buffer, bytes);
        writers_.write(region.buffer, bytes, region.at);
        ++writes_done_;
        bytes_written_ += bytes;
        region = {region.at + bytes, region.end, nullptr, 0, buffer_bytes_};
    }

    u32 buffer_bytes_;
    DirectWriters writers_;
    std::vector<Region> regions_;
    std::vector<Xxh3Stream> digests_;  // by region, if wanted
    u64 writes_done_ = 0, bytes_written_ = 0;
};

}  // namespace outcore
