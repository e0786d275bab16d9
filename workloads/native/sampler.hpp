// Neighbour sampling over CSC arrays that may be memory-mapped: what a batch is, and the sampler that draws it.
//
// A batch is a function of (seed, epoch, batch, its seed nodes, fan-outs, the graph): every hop expands the whole
// destination set, draws come from draws.hpp, edges stand by (destination, position in its list) and nodes in the
// order: seed nodes as drawn, then the new nodes of each hop by ascending id. Memory is bounded by the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "scratch.hpp"

namespace outcore {

struct SampledHop {
    Buffer<std::int64_t> indptr;   // [num_dst + 1]
    Buffer<std::int32_t> indices;  // [num_edges], positions among the sources
    std::int64_t num_src = 0, num_dst = 0;
};

struct Sample {
    Buffer<std::int64_t> nodes;
    std::vector<SampledHop> hops;  // the hop next to the seed nodes first
    std::int64_t edge_reads = 0, list_reads = 0;
};

struct SamplerOptions {
    std::vector<std::int64_t> fanout;  // next to the seed nodes first; < 0 takes all
    std::uint64_t seed = 0;
    bool replace = false;
    int threads = 1;
    bool wide_keys = false;  // 64-bit keys although the graph does not need them, for tests
};

class NeighborSampler {
public:
    virtual ~NeighborSampler() = default;

    // Throws std::invalid_argument for seed nodes that are repeated or out of range and for a batch too large for
    // 32-bit positions, std::out_of_range for a graph whose arrays contradict each other. Any number of calls at once.
    virtual Sample sample(std::uint64_t epoch, std::uint64_t batch, std::span<const std::int64_t> seeds) = 0;

    // Bytes of working memory kept for later calls.
    virtual std::size_t scratch_bytes() = 0;
};

// The arrays must outlive the sampler; indptr has one entry more than nodes.
template <class Index>
std::unique_ptr<NeighborSampler> make_neighbor_sampler(std::span<const std::int64_t> indptr,
                                                       std::span<const Index> indices, SamplerOptions options);

}  // namespace outcore
