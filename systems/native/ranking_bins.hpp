// Edges of a graph in CSC sorted into bins of source nodes, so that adding along them stays inside the second-level cache
// and threads need no atomics: a bin is added to by one thread, in the order of the edges. A sum is therefore the same to
// the last bit for any number of threads and any cut of the graph into chunks, and for one loop over all edges.
#pragma once

#include <bit>
#include <cstdint>
#include <new>
#include <span>
#include <vector>

#include "aligned_memory.hpp"

namespace outcore {

// Node u is entry u >> shift of bin u & (bins - 1): neighbouring ids go to different bins, so that a graph whose hot
// nodes have the lowest ids still gives every thread its share.
struct Binning {
    // 2^18 sums are 2 MiB. Smaller bins would stay nearer to the core, but the targets' values are read again for each.
    static constexpr unsigned local_bits = 18;

    explicit Binning(std::uint64_t num_nodes) {
        while ((num_nodes >> shift) >= (std::uint64_t{1} << local_bits)) ++shift;
        span = (num_nodes >> shift) + 1;
    }

    std::uint64_t bins() const { return std::uint64_t{1} << shift; }
    std::uint64_t entries() const { return span << shift; }  // of an array of one sum a node, bin after bin
    std::uint64_t place(std::uint64_t node) const { return (node & (bins() - 1)) * span + (node >> shift); }

    unsigned shift = 4;  // at least as many bins as a few threads need
    std::uint64_t span = 0;
};

// Some edges, target after target, ready to be added along.
class BinnedEdges {
public:
    // Room for `capacity` edges; what append() adds is in order of the calls.
    BinnedEdges(std::uint64_t num_nodes, std::uint64_t capacity)
        : num_nodes_(num_nodes), binning_(num_nodes), capacity_(checked(capacity)),
          memory_(capacity * sizeof(std::uint32_t)), edges_(reinterpret_cast<std::uint32_t*>(memory_.data())) {}

    // Adds the edges from `first_edge` of the graph on, whose sources are given; `indptr` has the index pointers of the
    // targets `first_target`, …, and of the one after them. False where a source is no node or `indptr` is not of this
    // graph: then nothing was added. Throws std::length_error where there is no room.
    template <class Id>
    bool append(std::span<const Id> sources, std::span<const std::int64_t> indptr, std::int64_t first_target,
                std::int64_t first_edge, unsigned threads);

    void clear();
    std::uint64_t num_nodes() const { return num_nodes_; }
    std::uint64_t size() const { return size_; }  // edges
    std::uint64_t capacity() const { return capacity_; }

    // Bytes of an object with that capacity, to which `appends` times edges of `targets` nodes in all are added.
    static std::uint64_t plan_bytes(std::uint64_t num_nodes, std::uint64_t edges, std::uint64_t targets,
                                    std::uint64_t appends);

private:
    friend void add_along(std::span<const BinnedEdges* const>, std::span<const double>, std::span<double>, unsigned);

    // A part's edges fit into 32 bits each: the target's number in the part above, the source's place in the bin below.
    struct Part {
        std::uint64_t begin;  // first edge in edges_
        std::uint64_t end;
        std::int64_t target;  // of the first edge
    };
    static constexpr std::uint64_t part_targets = std::uint64_t{1} << (32 - Binning::local_bits);
    static std::uint64_t part_edges(std::uint64_t bins);

    template <class Id>
    bool sort_part(const Part& part, std::uint32_t* begins, std::span<const Id> sources,
                   std::span<const std::int64_t> indptr, std::int64_t first_target, std::int64_t first_edge);

    static std::uint64_t checked(std::uint64_t capacity) {
        if (capacity > (std::uint64_t{1} << 60)) throw std::bad_alloc();
        return capacity;
    }

    std::uint64_t num_nodes_;
    Binning binning_;
    std::uint64_t capacity_;
    AlignedMemory memory_;
    std::uint32_t* edges_;
    std::uint64_t size_ = 0;
    std::vector<Part> parts_;
    std::vector<std::uint32_t> begins_;  // of each part and bin, and the end of the last bin
};

// sums[place(source)] += values[target] along every edge, in the order of the edges and of `chunks`.
void add_along(std::span<const BinnedEdges* const> chunks, std::span<const double> values, std::span<double> sums,
               unsigned threads);

// scores[u] = base + damping * sums[place(u)], and zeroes the sums. Returns the sum of |scores[u] - before[u]| (0 where
// `before` is empty), the same for any number of threads.
double pagerank_step(std::span<double> scores, std::span<double> sums, std::span<const double> before, double base,
                     double damping, unsigned threads);

// scores[i] /= in-degree of target i; 0 where it has no in-neighbours. `indptr` has one entry more than `scores`. False
// where it decreases: then the scores mean nothing.
bool divide_by_degrees(std::span<double> scores, std::span<const std::int64_t> indptr, unsigned threads);

}  // namespace outcore
