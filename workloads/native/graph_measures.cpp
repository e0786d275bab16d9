// Measures of a CSC graph by sampling, and communities by streaming over it.
#include "graph_measures.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "parallel.hpp"
#include "permutation.hpp"

namespace outcore {

namespace {

template <typename Index>
bool has_edge(const Graph<Index>& graph, Index from, Index to, bool sorted) {
    const auto list = graph.neighbours(to);
    return sorted ? std::binary_search(list.begin(), list.end(), from)
                  : std::find(list.begin(), list.end(), from) != list.end();
}

template <typename Index>
double local_clustering(const Graph<Index>& graph, std::int64_t node, int pairs, bool sorted, const Philox4x32& philox) {
    std::vector<Index> list;
    for (const Index u : graph.neighbours(node)) {
        if (static_cast<std::int64_t>(u) != node) list.push_back(u);
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    const auto degree = static_cast<std::int64_t>(list.size());
    if (degree < 2) return 0;
    const auto linked = [&](std::int64_t a, std::int64_t b) {
        const Index u = list[static_cast<std::size_t>(a)], v = list[static_cast<std::size_t>(b)];
        return has_edge(graph, u, v, sorted) || has_edge(graph, v, u, sorted);
    };
    std::int64_t closed = 0, tried = 0;
    if (degree * (degree - 1) / 2 <= pairs) {
        for (std::int64_t a = 0; a < degree; ++a) {
            for (std::int64_t b = a + 1; b < degree; ++b, ++tried) closed += linked(a, b) ? 1 : 0;
        }
    } else {
        PhiloxStream stream(philox, {0, static_cast<std::uint32_t>(node), static_cast<std::uint32_t>(node >> 32),
                                     static_cast<std::uint32_t>(Purpose::kProbe)});
        for (; tried < pairs; ++tried) {
            const auto a = static_cast<std::int64_t>(stream.below64(static_cast<std::uint64_t>(degree)));
            const auto b = static_cast<std::int64_t>(stream.below64(static_cast<std::uint64_t>(degree) - 1));
            closed += linked(a, b < a ? b : b + 1) ? 1 : 0;
        }
    }
    return static_cast<double>(closed) / static_cast<double>(tried);
}

}  // namespace

template <typename Index>
double clustering(const Graph<Index>& graph, std::span<const std::int64_t> nodes, int pairs, bool sorted,
                  std::uint64_t seed, int threads) {
    std::vector<double> local(nodes.size());
    const Philox4x32 philox(seed);
    parallel_for(static_cast<std::int64_t>(nodes.size()), 64, threads, [&](std::int64_t begin, std::int64_t end, int) {
        for (auto k = static_cast<std::size_t>(begin); k < static_cast<std::size_t>(end); ++k) {
            local[k] = local_clustering(graph, nodes[k], pairs, sorted, philox);
        }
    });
    double sum = 0;  // in order, so that the mean does not depend on the threads
    for (const double value : local) sum += value;
    return nodes.empty() ? 0 : sum / static_cast<double>(nodes.size());
}

template <typename Index>
Homophily homophily(const Graph<Index>& graph, std::span<const std::int64_t> labels,
                    std::span<const std::int64_t> nodes, int threads) {
    if (static_cast<std::int64_t>(labels.size()) != graph.num_nodes()) throw std::invalid_argument("homophily needs one label for each node");
    std::atomic<std::int64_t> same{0}, edges{0};
    parallel_for(static_cast<std::int64_t>(nodes.size()), 1024, threads, [&](std::int64_t begin, std::int64_t end, int) {
        std::int64_t own_same = 0, own_edges = 0;
        for (std::int64_t k = begin; k < end; ++k) {
            const std::int64_t v = nodes[static_cast<std::size_t>(k)];
            const auto list = graph.neighbours(v);
            const std::int64_t label = labels[static_cast<std::size_t>(v)];
            if (label < 0) continue;
            for (const Index u : list) {
                const std::int64_t other = labels[graph.source(u)];
                own_edges += other >= 0 ? 1 : 0;
                own_same += other == label ? 1 : 0;
            }
        }
        same += own_same;
        edges += own_edges;
    });
    return {same, edges};
}

template <typename Index>
void count_sources(std::span<const Index> indices, std::span<std::int64_t> counts, int threads) {
    parallel_for(static_cast<std::int64_t>(indices.size()), 1 << 18, threads,
                 [&](std::int64_t begin, std::int64_t end, int) {
                     for (std::int64_t e = begin; e < end; ++e) {
                         const auto source = static_cast<std::size_t>(indices[static_cast<std::size_t>(e)]);
                         if (source >= counts.size())
                             throw std::out_of_range("edge " + std::to_string(e) + " comes from node " +
                                                     std::to_string(indices[static_cast<std::size_t>(e)]) +
                                                     ", which is not one of " + std::to_string(counts.size()));
                         std::atomic_ref<std::int64_t>(counts[source])
                             .fetch_add(1, std::memory_order_relaxed);
                     }
                 });
}

template <typename Index>
void sort_lists(std::span<const std::int64_t> indptr, std::span<Index> indices, int threads) {
    const Graph<Index> graph{indptr, indices};
    parallel_for(graph.num_nodes(), 4096, threads,
                 [&](std::int64_t begin, std::int64_t end, int) {
                     for (auto v = static_cast<std::size_t>(begin); v < static_cast<std::size_t>(end); ++v) {
                         static_cast<void>(graph.neighbours(static_cast<std::int64_t>(v)));
                         std::sort(indices.begin() + indptr[v], indices.begin() + indptr[v + 1]);
                     }
                 });
}

template <typename Index>
void communities(const Graph<Index>& graph, std::int32_t num_communities, int sweeps, std::uint64_t seed,
                 std::span<std::int64_t> out) {
    const std::int64_t n = graph.num_nodes();
    if (num_communities < 1 || static_cast<std::int64_t>(out.size()) != n) {
        throw std::invalid_argument("communities needs one place for each node");
    }
    const auto count = static_cast<std::size_t>(num_communities);
    const double capacity = 1.1 * static_cast<double>(n) / num_communities + 1;
    std::vector<std::int64_t> size(count), links(count);
    std::vector<std::size_t> touched;
    std::vector<std::int32_t> places(static_cast<std::size_t>(n), -1);  // 32 bits, so that more places stay in cache
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        const Permutation order(static_cast<std::uint64_t>(n), seed, static_cast<std::uint32_t>(sweep),
                                static_cast<std::uint32_t>(Purpose::kLabel));
        for (std::int64_t k = 0; k < n; ++k) {
            const auto v = static_cast<std::int64_t>(order.forward(static_cast<std::uint64_t>(k)));
            std::int32_t& place = places[static_cast<std::size_t>(v)];
            if (place >= 0) --size[static_cast<std::size_t>(place)];
            touched.clear();
            for (const Index u : graph.neighbours(v)) {
                const std::int32_t other = places[graph.source(u)];
                if (other < 0 || static_cast<std::int64_t>(u) == v) continue;
                const auto c = static_cast<std::size_t>(other);
                if (links[c]++ == 0) touched.push_back(c);
            }
            double best = 0;
            std::int64_t chosen = -1;
            std::sort(touched.begin(), touched.end());
            for (const std::size_t c : touched) {
                const double score = static_cast<double>(links[c]) * (1 - static_cast<double>(size[c]) / capacity);
                if (score > best) {
                    best = score;
                    chosen = static_cast<std::int64_t>(c);
                }
                links[c] = 0;
            }
            if (chosen < 0) {  // no placed neighbour: stay, or join the smallest community
                chosen = place >= 0 ? place : std::min_element(size.begin(), size.end()) - size.begin();
            }
            place = static_cast<std::int32_t>(chosen);
            ++size[static_cast<std::size_t>(place)];
        }
    }
    std::copy(places.begin(), places.end(), out.begin());
}

#define OUTCORE_FOR_INDEX(Index)                                                                                      \
    template double clustering(const Graph<Index>&, std::span<const std::int64_t>, int, bool, std::uint64_t, int);    \
    template Homophily homophily(const Graph<Index>&, std::span<const std::int64_t>, std::span<const std::int64_t>,   \
                                 int);                                                                                \
    template void count_sources(std::span<const Index>, std::span<std::int64_t>, int);                                \
    template void sort_lists(std::span<const std::int64_t>, std::span<Index>, int);                                   \
    template void communities(const Graph<Index>&, std::int32_t, int, std::uint64_t, std::span<std::int64_t>);
OUTCORE_FOR_INDEX(std::int32_t)
OUTCORE_FOR_INDEX(std::int64_t)

}  // namespace outcore
