// Measures of a CSC graph by sampling, and communities by streaming over it.
#include "making/graph_measures.hpp"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "base/team.hpp"
#include "making/permutation.hpp"

namespace outcore {

namespace {

template <typename Index>
bool has_edge(const Graph<Index>& graph, Index from, Index to, bool sorted) {
    const auto list = graph.neighbours(to);
    return sorted ? std::binary_search(list.begin(), list.end(), from)
                  : std::find(list.begin(), list.end(), from) != list.end();
}

template <typename Index>
double local_clustering(const Graph<Index>& graph, i64 node, int pairs, bool sorted, const Philox4x32& philox) {
    std::vector<Index> list;
    for (const Index u : graph.neighbours(node)) {
        if (static_cast<i64>(u) != node) list.push_back(u);
    }
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    const auto degree = static_cast<i64>(list.size());
    if (degree < 2) return 0;
    const auto linked = [&](i64 a, i64 b) {
        const Index u = list[static_cast<size_t>(a)], v = list[static_cast<size_t>(b)];
        return has_edge(graph, u, v, sorted) || has_edge(graph, v, u, sorted);
    };
    i64 closed = 0, tried = 0;
    if (degree * (degree - 1) / 2 <= pairs) {
        for (i64 a = 0; a < degree; ++a) {
            for (i64 b = a + 1; b < degree; ++b, ++tried) closed += linked(a, b) ? 1 : 0;
        }
    } else {
        PhiloxStream stream(
            philox, {0, static_cast<u32>(node), static_cast<u32>(node >> 32), static_cast<u32>(Purpose::kProbe)});
        for (; tried < pairs; ++tried) {
            const auto a = static_cast<i64>(stream.below64(static_cast<u64>(degree)));
            const auto b = static_cast<i64>(stream.below64(static_cast<u64>(degree) - 1));
            closed += linked(a, b < a ? b : b + 1) ? 1 : 0;
        }
    }
    return static_cast<double>(closed) / static_cast<double>(tried);
}

}  // namespace

template <typename Index>
double clustering(const Graph<Index>& graph, std::span<const i64> nodes, int pairs, bool sorted, u64 seed,
                  int threads) {
    std::vector<double> local(nodes.size());
    const Philox4x32 philox(seed);
    parallel(static_cast<i64>(nodes.size()), 64, threads, [&](i64 begin, i64 end, int) {
        for (auto k = static_cast<size_t>(begin); k < static_cast<size_t>(end); ++k) {
            local[k] = local_clustering(graph, nodes[k], pairs, sorted, philox);
        }
    });
    double sum = 0;  // in order, so that the mean does not depend on the threads
    for (const double value : local) sum += value;
    return nodes.empty() ? 0 : sum / static_cast<double>(nodes.size());
}

template <typename Index>
Homophily homophily(const Graph<Index>& graph, std::span<const i64> labels, std::span<const i64> nodes, int threads) {
    if (static_cast<i64>(labels.size()) != graph.num_nodes())
        throw std::invalid_argument("homophily needs one label for each node");
    std::atomic<i64> same{0}, edges{0};
    parallel(static_cast<i64>(nodes.size()), 1024, threads, [&](i64 begin, i64 end, int) {
        i64 own_same = 0, own_edges = 0;
        for (i64 k = begin; k < end; ++k) {
            const i64 v = nodes[static_cast<size_t>(k)];
            const auto list = graph.neighbours(v);
            const i64 label = labels[static_cast<size_t>(v)];
            if (label < 0) continue;
            for (const Index u : list) {
                const i64 other = labels[graph.source(u)];
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
void count_sources(std::span<const Index> indices, std::span<i64> counts, int threads) {
    parallel(static_cast<i64>(indices.size()), 1 << 18, threads, [&](i64 begin, i64 end, int) {
        for (i64 e = begin; e < end; ++e) {
            const auto source = static_cast<size_t>(indices[static_cast<size_t>(e)]);
            if (source >= counts.size())
                throw std::out_of_range("edge " + std::to_string(e) + " comes from node " +
                                        std::to_string(indices[static_cast<size_t>(e)]) + ", which is not one of " +
                                        std::to_string(counts.size()));
            std::atomic_ref<i64>(counts[source]).fetch_add(1, std::memory_order_relaxed);
        }
    });
}

template <typename Index>
void sort_lists(std::span<const i64> indptr, std::span<Index> indices, int threads) {
    const Graph<Index> graph{indptr, indices};
    parallel(graph.num_nodes(), 4096, threads, [&](i64 begin, i64 end, int) {
        for (auto v = static_cast<size_t>(begin); v < static_cast<size_t>(end); ++v) {
            static_cast<void>(graph.neighbours(static_cast<i64>(v)));
            std::sort(indices.begin() + indptr[v], indices.begin() + indptr[v + 1]);
        }
    });
}

template <typename Index>
void communities(const Graph<Index>& graph, i32 num_communities, int sweeps, u64 seed, std::span<i64> out) {
    const i64 n = graph.num_nodes();
    if (num_communities < 1 || static_cast<i64>(out.size()) != n) {
        throw std::invalid_argument("communities needs one place for each node");
    }
    const auto count = static_cast<size_t>(num_communities);
    const double capacity = 1.1 * static_cast<double>(n) / num_communities + 1;
    std::vector<i64> size(count), links(count);
    std::vector<size_t> touched;
    std::vector<i32> places(static_cast<size_t>(n), -1);  // 32 bits, so that more places stay in cache
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        const Permutation order(static_cast<u64>(n), seed, static_cast<u32>(sweep), static_cast<u32>(Purpose::kLabel));
        for (i64 k = 0; k < n; ++k) {
            const auto v = static_cast<i64>(order.forward(static_cast<u64>(k)));
            i32& place = places[static_cast<size_t>(v)];
            if (place >= 0) --size[static_cast<size_t>(place)];
            touched.clear();
            for (const Index u : graph.neighbours(v)) {
                const i32 other = places[graph.source(u)];
                if (other < 0 || static_cast<i64>(u) == v) continue;
                const auto c = static_cast<size_t>(other);
                if (links[c]++ == 0) touched.push_back(c);
            }
            double best = 0;
            i64 chosen = -1;
            std::sort(touched.begin(), touched.end());
            for (const size_t c : touched) {
                const double score = static_cast<double>(links[c]) * (1 - static_cast<double>(size[c]) / capacity);
                if (score > best) {
                    best = score;
                    chosen = static_cast<i64>(c);
                }
                links[c] = 0;
            }
            if (chosen < 0) {  // no placed neighbour: stay, or join the smallest community
                chosen = place >= 0 ? place : std::min_element(size.begin(), size.end()) - size.begin();
            }
            place = static_cast<i32>(chosen);
            ++size[static_cast<size_t>(place)];
        }
    }
    std::copy(places.begin(), places.end(), out.begin());
}

#define OUTCORE_FOR_INDEX(Index)                                                                        \
    template double clustering(const Graph<Index>&, std::span<const i64>, int, bool, u64, int);         \
    template Homophily homophily(const Graph<Index>&, std::span<const i64>, std::span<const i64>, int); \
    template void count_sources(std::span<const Index>, std::span<i64>, int);                           \
    template void sort_lists(std::span<const i64>, std::span<Index>, int);                              \
    template void communities(const Graph<Index>&, i32, int, u64, std::span<i64>);
OUTCORE_FOR_INDEX(i32)
OUTCORE_FOR_INDEX(i64)

}  // namespace outcore
