// Distribution step of an external sort (Aggarwal and Vitter 1988, Section 3): data appended to a region of a file goes
// through the region's buffer, and a full buffer is one long direct write.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/types.hpp"
#include "io/direct_writers.hpp"
#include "store/xxh3.hpp"

namespace outcore {

// Calls visit(node, part of its list inside the run) for each node in order. The run: edges [first_edge, first_edge +
// sources.size()) of a graph in CSC, and the index pointers of nodes first_node, first_node + 1, …, with the end of the
// last list. Throws std::out_of_range where the run does not fit a graph of `nodes` nodes.
template <class Index, class Visit>
void for_each_list(Ids indptr, i64 first_node, i64 first_edge, std::span<const Index> sources, size_t nodes,
                   const Visit& visit) {
    const auto end = first_edge + static_cast<i64>(sources.size());
    if (indptr.empty() || first_node < 0 || static_cast<u64>(first_node) + indptr.size() - 1 > nodes)
        throw std::out_of_range("the run has nodes that the graph has not");
    if (indptr.front() > first_edge || indptr.back() < end)
        throw std::out_of_range("the run has edges outside its nodes' lists");
    for (size_t i = 0; i + 1 < indptr.size(); ++i) {
        if (indptr[i + 1] < indptr[i])
            throw std::out_of_range("neighbour lists do not follow one another: indptr descends");
        const i64 from = std::max(indptr[i], first_edge), to = std::min(indptr[i + 1], end);
        if (from < to)
            visit(static_cast<size_t>(first_node) + i,
                  sources.subspan(static_cast<size_t>(from - first_edge), static_cast<size_t>(to - from)));
    }
}

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
    void rows(Table rows, std::span<const u8> regions);
    // Appends each neighbour list of a run (see `for_each_list`) to the region of its node.
    template <class Index>
    void lists(Ids indptr, i64 first_node, i64 first_edge, std::span<const Index> sources,
               std::span<const u8> region_of) {
        for_each_list(indptr, first_node, first_edge, sources, region_of.size(),
                      [&](size_t node, std::span<const Index> list) { append(region_of[node], std::as_bytes(list)); });
    }
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
