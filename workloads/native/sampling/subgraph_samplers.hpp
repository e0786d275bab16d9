// Samplers that draw for a whole mini-batch at once: layer by layer, and a subgraph around its seed nodes.
//
// Both give batches in the canonical order of sampler.hpp, take a neighbour cache and a renumbered graph as the
// neighbour sampler does, and are functions of (seed, epoch, batch, seed nodes, graph): the team only reads.
#pragma once

#include "sampling/sampler.hpp"

namespace outcore {

// Layer-wise sampling with importance (after FastGCN, Chen, Ma and Xiao 2018, and LADIES, Zou et al. 2019). Of the
// in-neighbours of a hop's destinations that are no destinations themselves, `fanout[hop]` nodes are drawn without
// replacement (all where there are fewer, or for a fan-out < 0); destinations stay sources. A block holds every edge
// between its destinations and its sources.
//
// A candidate's weight is the sum of 1 / degree(i)^2 over its edges to destinations i: the squared entries of the
// row-normalised adjacency matrix. Its priority is weight / u with u uniform in (0, 1] from its own stream (draws.hpp);
// the largest priorities are taken, ties by id (priority sampling, Duffield, Lund and Thorup 2007). Weights are summed
// in the order of edges and only divided, so they are the same bits everywhere.
template <class Index>
std::unique_ptr<NeighborSampler> make_layerwise_sampler(const Topology<Index>& graph, SamplerOptions options);

// Sampling of a subgraph (after shaDow-GNN, Zeng et al. 2021): the nodes that the neighbour sampler reaches from the
// seed nodes with its fan-outs, and every edge of the graph between them, as one hop from all of them to all of them.
template <class Index>
std::unique_ptr<NeighborSampler> make_shadow_sampler(const Topology<Index>& graph, SamplerOptions options);

}  // namespace outcore
