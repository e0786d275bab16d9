// Edges of a graph in CSC sorted into bins of source nodes, so that adding along edges stays inside the second-level
// cache and needs no atomics: one thread adds to a bin, in the order of the edges. Sums are therefore equal to the last
// bit for any number of threads, any cut of the graph into chunks, and a plain loop over all edges.
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
    // 2^18 sums are 2 MiB. Smaller bins would stay nearer to the core, but every bin reads the targets' values again.
    static constexpr unsigned local_bits = 18;

    explicit Binning(std::uint64_t num_nodes) {
        while ((num_nodes >> shift) >= (std::uint64_t{1} << local_bits)) ++shift;
        span = (num_nodes >> shift) + 1;
    }

    std::uint64_t bins() const { return std::uint64_t{1} << shift; }
    std::uint64_t entries() const { return span << shift; }  // length of an array with one sum a node, bin after bin
    std::uint64_t place(std::uint64_t node) const { return (node & (bins() - 1)) * span + (node >> shift); }

    unsigned shift = 4;  // at least 16 bins, for a few threads
    std::uint64_t span = 0;
};

// Edges sorted into bins, target after target, for `add_along`.
class BinnedEdges {
public:
    // Allocates memory for `capacity` edges, which stay in the order of the append() calls.
    BinnedEdges(std::uint64_t num_nodes, std::uint64_t capacity)
        : num_nodes_(num_nodes), binning_(num_nodes), capacity_(checked(capacity)),
          memory_(capacity * sizeof(std::uint32_t)), edges_(reinterpret_cast<std::uint32_t*>(memory_.data())) {}

    // Adds the edges from `first_edge` of the graph on, with the given sources; `indptr` has the index pointers of the
    // targets from `first_target` on, and one more. Returns false, and adds nothing, for an invalid source or an
    // `indptr` of another graph. Throws std::length_error beyond the capacity.
    template <class Id>
    bool append(std::span<const Id> sources, std::span<const std::int64_t> indptr, std::int64_t first_target,
                std::int64_t first_edge, unsigned threads);

    void clear();
    std::uint64_t num_nodes() const { return num_nodes_; }
    std::uint64_t size() const { return size_; }  // number of edges
    std::uint64_t capacity() const { return capacity_; }

    // Returns the bytes of an object for `edges` edges of `targets` target nodes in total, added by `appends` calls.
    static std::uint64_t plan_bytes(std::uint64_t num_nodes, std::uint64_t edges, std::uint64_t targets,
                                    std::uint64_t appends);

private:
    friend void add_along(std::span<const BinnedEdges* const>, std::span<const double>, std::span<double>, unsigned);

    // Edges of 32 bits each: high bits the target's number in the part, low bits the source's place in its bin.
    struct Part {
        std::uint64_t begin;  // first edge in edges_
        std::uint64_t end;
        std::int64_t target;  // target of the first edge
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
    std::vector<std::uint32_t> begins_;  // by part and bin: begin of its edges; and the end of the last bin
};

// Adds values[target] to sums[place(source)] along every edge, in the order of the edges and of `chunks`.
void add_along(std::span<const BinnedEdges* const> chunks, std::span<const double> values, std::span<double> sums,
               unsigned threads);

// Sets scores[u] to base + damping * sums[place(u)] and zeroes the sums. Returns the sum of |scores[u] - before[u]| (0
// where `before` is empty), the same for any number of threads.
double pagerank_step(std::span<double> scores, std::span<double> sums, std::span<const double> before, double base,
                     double damping, unsigned threads);

// Divides scores[i] by the in-degree of target i; 0 for a target without in-neighbours. `indptr` has one entry more
// than `scores`. Returns false where `indptr` decreases: the scores are then invalid.
bool divide_by_degrees(std::span<double> scores, std::span<const std::int64_t> indptr, unsigned threads);

}  // namespace outcore
