// Neighbour sampling over CSC arrays that may be memory-mapped: the batch, and the sampler that draws it.
//
// A batch is a function of (seed, epoch, batch, its seed nodes, fan-outs, the graph): every hop expands the whole
// destination set, draws come from draws.hpp, edges are ordered by (destination, position in its list), and nodes are
// the seed nodes as drawn, then the new nodes of each hop by ascending id. Memory is bounded by the batch.
// A neighbour cache (lists kept beside the graph) and a renumbering of the graph change where a list is read and under
// which id a node is stored, never the batch: draws and order go by original ids.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "base/scratch.hpp"
#include "base/types.hpp"

namespace outcore {

struct SampledHop {
    Buffer<i64> indptr;   // [num_dst + 1]
    Buffer<i32> indices;  // [num_edges], positions among the sources
    i64 num_src = 0, num_dst = 0;
};

struct Sample {
    Buffer<i64> nodes;             // original ids
    Buffer<i64> local;             // ids in a renumbered graph; empty otherwise
    std::vector<SampledHop> hops;  // the hop next to the seed nodes first
    i64 edge_reads = 0, list_reads = 0, list_hits = 0;
};

// The graph to sample. The arrays must outlive the sampler. `address` and `names` may be empty.
template <class Index>
struct Topology {
    std::span<const i64> indptr;     // [N + 1]
    std::span<const Index> indices;  // [E]
    std::span<const i64> address;    // [N]: start of a cached list in `lists`, -1: not cached
    std::span<const Index> lists;    // the cached lists, each in the order of `indices`
    std::span<const i64> names;      // [N]: original ids of a renumbered graph's nodes, distinct
};

struct SamplerOptions {
    std::vector<i64> fanout;  // next to the seed nodes first; < 0 takes all
    u64 seed = 0;
    bool replace = false;
    int threads = 1;
    bool wide_keys = false;  // 64-bit keys although the graph does not need them, for tests
};

// One past the largest original id. Throws std::invalid_argument for names or addresses that do not fit the graph.
template <class Index>
u64 name_bound(const Topology<Index>& graph);

class NeighborSampler {
public:
    virtual ~NeighborSampler() = default;

    // `seeds` are ids of the given graph, so local ids where it is renumbered.
    // Throws std::invalid_argument for seed nodes that are repeated or out of range and for a batch too large for
    // 32-bit positions, std::out_of_range for a graph whose arrays contradict each other. Thread-safe.
    virtual Sample sample(u64 epoch, u64 batch, std::span<const i64> seeds) = 0;

    // Bytes of working memory kept for later calls.
    virtual size_t scratch_bytes() = 0;
};

// Throws std::invalid_argument for names or addresses that do not fit the graph.
template <class Index>
std::unique_ptr<NeighborSampler> make_neighbor_sampler(const Topology<Index>& graph, SamplerOptions options);

}  // namespace outcore
