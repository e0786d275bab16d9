// The distribution step of an external sort: what is appended to the regions of a file goes through a buffer each, and a
// full buffer is one long direct write. (Aggarwal and Vitter 1988, section 3.)
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
    // The file exists; region k is its bytes bounds[k] to bounds[k + 1], all whole pages.
    // Throws std::invalid_argument, std::system_error.
    Spread(const std::string& path, std::span<const std::int64_t> bounds, const DirectWritersOptions& options);

    // Bytes of the buffers of so many regions.
    static std::uint64_t bytes(std::uint64_t regions, const DirectWritersOptions& options) {
        return (regions + 2 * std::uint64_t{options.writers}) * options.buffer_bytes;
    }

    // Each throws std::out_of_range for a region that is not there or is full; what failed to be written `finish` tells.
    void append(std::size_t region, std::span<const std::byte> data);
    // Row i to region regions[i].
    void rows(std::span<const std::byte> data, std::uint64_t row_bytes, std::span<const std::uint8_t> regions);
    // Each neighbour list of the run to the region of its node.
    template <class Index>
    void lists(const EdgeRun<Index>& run, std::span<const std::uint8_t> region_of);
    // Writes what is left in the buffers, with zeros to a page, and waits; the first failure.
    std::optional<WriteFailure> finish();

    const std::optional<WriteFailure>& failure() const { return writers_.failure(); }
    std::uint64_t writes() const { return writes_done_; }
    std::uint64_t bytes_written() const { return bytes_written_; }

private:
    struct Region {
        std::uint64_t at, end;  // of the file: where the buffer will go, and where the region ends
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
