// Neighbour sampling over CSC arrays that may be memory-mapped: the batch, and the sampler that draws it.
//
// A batch is a function of (seed, epoch, batch, its seed nodes, fan-outs, the graph): every hop expands the whole
// destination set, draws come from draws.hpp, edges are ordered by (destination, position in its list), and nodes are
// the seed nodes as drawn, then the new nodes of each hop by ascending id. Memory is bounded by the batch.
// A neighbour cache (lists kept beside the graph) and a renumbering of the graph change where a list is read and under
// which id a node is stored, never the batch: draws and order go by original ids.
#pragma once

#include <algorithm>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/draws.hpp"
#include "base/refuse.hpp"
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

// A graph, to sample or to measure. The arrays must outlive the sampler. `address` and `names` may be empty.
template <class Index>
struct Topology {
    std::span<const i64> indptr;     // [N + 1]
    std::span<const Index> indices;  // [E]
    std::span<const i64> address;    // [N]: start of a cached list in `lists`, -1: not cached
    std::span<const Index> lists;    // the cached lists, each in the order of `indices`
    std::span<const i64> names;      // [N]: original ids of a renumbered graph's nodes, distinct

    u64 num_nodes() const noexcept { return indptr.size() - 1; }
    bool renumbered() const noexcept { return !names.empty(); }
    i64 name(i64 node) const noexcept { return renumbered() ? names[static_cast<size_t>(node)] : node; }
    bool cached(i64 node) const noexcept { return !address.empty() && address[static_cast<size_t>(node)] >= 0; }

    // Throws std::out_of_range for an unknown node or a list outside its array.
    std::span<const Index> list(i64 node) const {
        const auto at = static_cast<size_t>(node);
        if (indptr.empty() || at >= num_nodes())
            refuse<std::out_of_range>("node ", node, " is not one of the graph's ", indptr.empty() ? 0 : num_nodes());
        const i64 start = indptr[at], end = indptr[at + 1], from = cached(node) ? address[at] : start;
        const std::span<const Index> whole = cached(node) ? lists : indices;
        if (start < 0 || end < start || static_cast<u64>(from) > whole.size() ||
            static_cast<u64>(end - start) > whole.size() - static_cast<u64>(from))
            refuse_list(at, start, end, indices.size());
        return whole.subspan(static_cast<size_t>(from), static_cast<size_t>(end - start));
    }

    // Returns one past the largest original id. Throws std::invalid_argument for names or addresses that do not fit.
    u64 name_bound() const {
        if (!address.empty() && address.size() != num_nodes())
            refuse<std::invalid_argument>("there are ", address.size(), " list addresses for ", num_nodes(), " nodes");
        if (!names.empty() && names.size() != num_nodes())
            refuse<std::invalid_argument>("there are ", names.size(), " names for ", num_nodes(), " nodes");
        u64 bound = num_nodes();
        for (const i64 name : names) {
            if (static_cast<u64>(name) >= kMaxNode)
                refuse<std::invalid_argument>("the name ", name, " is not a node id");
            bound = std::max(bound, static_cast<u64>(name) + 1);
        }
        return bound;
    }
};

struct SamplerOptions {
    std::vector<i64> fanout;  // next to the seed nodes first; < 0 takes all
    u64 seed = 0;
    bool replace = false;
    int threads = 1;
    bool wide_keys = false;  // 64-bit keys although the graph does not need them, for tests
};

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

// Makes a sampler that draws for a whole mini-batch at once: "layerwise" (after FastGCN, Chen, Ma and Xiao 2018, and
// LADIES, Zou et al. 2019) or "shadow" (after shaDow-GNN, Zeng et al. 2021), which workloads/sampling/layerwise.py and
// shadow.py describe. These, too, give batches in the canonical order, take a neighbour cache and a renumbered graph,
// and are functions of (seed, epoch, batch, seed nodes, graph). A layer-wise priority takes u from the candidate's own
// stream (draws.hpp), ties go by id (priority sampling, Duffield, Lund and Thorup 2007); weights are summed in the
// order of edges and only divided, so they are the same bits everywhere. Throws std::invalid_argument for another kind,
// too.
template <class Index>
std::unique_ptr<NeighborSampler> make_subgraph_sampler(const std::string& kind, const Topology<Index>& graph,
                                                       SamplerOptions options);

}  // namespace outcore
