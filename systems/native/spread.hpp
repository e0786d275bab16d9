// Distribution step of an external sort (Aggarwal and Vitter 1988, Section 3): data appended to a region of a file goes
// through the region's buffer, and a full buffer is one long direct write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "direct_writers.hpp"
#include "edge_buckets.hpp"

namespace outcore {

class Spread {
public:
    // Opens an existing file, whose region k is bytes [bounds[k], bounds[k + 1]), all whole pages.
    // Throws std::invalid_argument, std::system_error.
    Spread(const std::string& path, std::span<const std::int64_t> bounds, const DirectWritersOptions& options);

    // Returns the bytes of the buffers of `regions` regions.
    static std::uint64_t bytes(std::uint64_t regions, const DirectWritersOptions& options) {
        return (regions + 2 * std::uint64_t{options.writers}) * options.buffer_bytes;
    }

    // append, rows and lists throw std::out_of_range for a missing or full region; `finish` returns a failed write.
    void append(std::size_t region, std::span<const std::byte> data);
    // Appends row i to region regions[i].
    void rows(std::span<const std::byte> data, std::uint64_t row_bytes, std::span<const std::uint8_t> regions);
    // Appends each neighbour list of the run to the region of its node.
    template <class Index>
    void lists(const EdgeRun<Index>& run, std::span<const std::uint8_t> region_of);
    // Writes the rest of the buffers, padded with zeros to a page, and waits; returns the first failure.
    std::optional<WriteFailure> finish();

    const std::optional<WriteFailure>& failure() const { return writers_.failure(); }
    std::uint64_t writes() const { return writes_done_; }
    std::uint64_t bytes_written() const { return bytes_written_; }

private:
    struct Region {
        std::uint64_t at, end;  // file offsets of the buffer's write and of the region's end
        std::byte* buffer = nullptr;
        std::uint64_t fill = 0, room = 0;
    };

    void flush(Region& region, std::uint64_t bytes);

    std::uint32_t buffer_bytes_;
    DirectWriters writers_;
    std::vector<Region> regions_;
    std::uint64_t writes_done_ = 0, bytes_written_ = 0;
};

}  // namespace outcore
