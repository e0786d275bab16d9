// Edges of a graph in CSC sorted into bins of source nodes, so that adding along edges stays inside the second-level
// cache and needs no atomics: one thread adds to a bin, in the order of the edges. Sums are therefore equal to the last
// bit for any number of threads, any cut of the graph into chunks, and a plain loop over all edges.
#pragma once

#include <new>
#include <vector>

#include "base/aligned_memory.hpp"

namespace outcore {

// Node u is entry u >> shift of bin u & (bins - 1): neighbouring ids go to different bins, so that a graph whose hot
// nodes have the lowest ids still gives every thread its share.
struct Binning {
    // 2^18 sums are 2 MiB. Smaller bins would stay nearer to the core, but every bin reads the targets' values again.
    static constexpr unsigned local_bits = 18;

    explicit Binning(u64 num_nodes) {
        while ((num_nodes >> shift) >= (u64{1} << local_bits)) ++shift;
        span = (num_nodes >> shift) + 1;
    }

    u64 bins() const { return u64{1} << shift; }
    u64 entries() const { return span << shift; }  // length of an array with one sum a node, bin after bin
    u64 place(u64 node) const { return (node & (bins() - 1)) * span + (node >> shift); }

    unsigned shift = 4;  // at least 16 bins, for a few threads
    u64 span = 0;
};

// Edges sorted into bins, target after target, for `add_along`.
class BinnedEdges {
public:
    // Allocates memory for `capacity` edges, which stay in the order of the append() calls.
    BinnedEdges(u64 num_nodes, u64 capacity)
        : num_nodes_(num_nodes),
          binning_(num_nodes),
          capacity_(checked(capacity)),
          memory_(capacity * sizeof(u32)),
          edges_(reinterpret_cast<u32*>(memory_.data())) {}

    // Adds the edges from `first_edge` of the graph on, with the given sources; `indptr` has the index pointers of the
    // targets from `first_target` on, and one more. Returns false, and adds nothing, for an invalid source or an
    // `indptr` of another graph. Throws std::length_error beyond the capacity.
    template <class Id>
    bool append(std::span<const Id> sources, Ids indptr, i64 first_target, i64 first_edge, unsigned threads);

    void clear();
    u64 num_nodes() const { return num_nodes_; }
    u64 size() const { return size_; }  // number of edges
    u64 capacity() const { return capacity_; }

    // Returns the bytes of an object for `edges` edges of `targets` target nodes in total, added by `appends` calls.
    static u64 plan_bytes(u64 num_nodes, u64 edges, u64 targets, u64 appends);

private:
    friend void add_along(std::span<const BinnedEdges* const>, std::span<const double>, std::span<double>, unsigned);

    // Edges of 32 bits each: high bits the target's number in the part, low bits the source's place in its bin.
    struct Part {
        u64 begin;  // first edge in edges_
        u64 end;
        i64 target;  // target of the first edge
    };
    static constexpr u64 part_targets = u64{1} << (32 - Binning::local_bits);
    static u64 part_edges(u64 bins);

    template <class Id>
    bool sort_part(const Part& part, u32* begins, std::span<const Id> sources, Ids indptr, i64 first_target,
                   i64 first_edge);

    static u64 checked(u64 capacity) {
        if (capacity > (u64{1} << 60)) throw std::bad_alloc();
        return capacity;
    }

    u64 num_nodes_;
    Binning binning_;
    u64 capacity_;
    AlignedMemory memory_;
    u32* edges_;
    u64 size_ = 0;
    std::vector<Part> parts_;
    std::vector<u32> begins_;  // by part and bin: begin of its edges; and the end of the last bin
};

// Adds values[target] to sums[place(source)] along every edge, in the order of the edges and of `chunks`. This and the
// functions below throw std::out_of_range for arrays that are too short.
void add_along(std::span<const BinnedEdges* const> chunks, std::span<const double> values, std::span<double> sums,
               unsigned threads);

// Sets scores[u] to base + damping * sums[place(u)] and zeroes the sums. Returns the sum of |scores[u] - before[u]| (0
// where `before` is empty), the same for any number of threads.
double pagerank_step(std::span<double> scores, std::span<double> sums, std::span<const double> before, double base,
                     double damping, unsigned threads);

// Divides scores[i] by the in-degree of target i; 0 for a target without in-neighbours. `indptr` has one entry more
// than `scores`. Returns false where `indptr` decreases: the scores are then invalid.
bool divide_by_degrees(std::span<double> scores, Ids indptr, unsigned threads);

}  // namespace outcore
