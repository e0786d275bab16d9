// Distribution step of an external sort (Aggarwal and Vitter 1988, Section 3): data appended to a region of a file goes
// through the region's buffer, and a full buffer is one long direct write.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "io/direct_writers.hpp"
#include "store/edge_buckets.hpp"
#include "store/xxh3.hpp"

namespace outcore {

class Spread {
public:
    // Bytes [begin, end) of the file, at page boundaries.
    struct Bounds {
        u64 begin, end;
    };
    // Returns the regions [bounds[k], bounds[k + 1]). Throws std::invalid_argument unless they are whole pages in order.
    static std::vector<Bounds> regions_between(Ids bounds);

    // Opens an existing file; `digest` keeps the XXH3 of each region. Throws std::invalid_argument, std::system_error.
    Spread(const std::string& path, std::span<const Bounds> regions, const DirectWritersOptions& options,
           bool digest = false);

    // Returns the bytes of the buffers of `regions` regions.
    static u64 bytes(u64 regions, const DirectWritersOptions& options) {
        return (regions + 2 * u64{options.writers}) * options.buffer_bytes;
    }

    // append, rows and lists throw std::out_of_range for a missing or full region; `finish` returns a failed write.
    void append(size_t region, std::span<const std::byte> data);
    // Appends row i to region regions[i].
    void rows(std::span<const std::byte> data, u64 row_bytes, std::span<const u8> regions);
    // Appends each neighbour list of the run to the region of its node.
    template <class Index>
    void lists(const EdgeRun<Index>& run, std::span<const u8> region_of);
    // Writes the rest of a region's buffer, padded with zeros to a page.
    void close(size_t region);
    // Writes the rest of the buffers, padded with zeros to a page, and waits; returns the first failure.
    std::optional<IoFailure> finish();
    // Waits for the writes queued so far; returns the first failure.
    std::optional<IoFailure> drain() { return writers_.finish(); }

    const std::optional<IoFailure>& failure() const { return writers_.failure(); }
    u64 writes() const { return writes_done_; }
    u64 bytes_written() const { return bytes_written_; }
    u64 digest(size_t region) const { return digests_.at(region).value(); }

private:
    struct Region {
        u64 at, end;  // file offsets of the buffer's write and of the region's end
        std::byte* buffer = nullptr;
        u64 fill = 0, room = 0;
    };

    void flush(size_t index, u64 bytes);

    u32 buffer_bytes_;
    DirectWriters writers_;
    std::vector<Region> regions_;
    std::vector<Xxh3Stream> digests_;  // by region, if wanted
    u64 writes_done_ = 0, bytes_written_ = 0;
};

}  // namespace outcore
