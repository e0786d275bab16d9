// Measures of a CSC graph (clustering, label homophily, out-degrees), communities for labels, and sorting of lists.
#include <nanobind/stl/pair.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <vector>

#include "base/arrays.hpp"
#include "base/team.hpp"
#include "making/permutation.hpp"
#include "sampling/sampler.hpp"

namespace outcore {
namespace {

template <typename Index>
bool has_edge(const Topology<Index>& graph, Index from, Index to, bool sorted) {
    const auto list = graph.list(to);
    return sorted ? std::binary_search(list.begin(), list.end(), from)
                  : std::find(list.begin(), list.end(), from) != list.end();
}

template <typename Index>
double local_clustering(const Topology<Index>& graph, i64 node, int pairs, bool sorted, const Philox4x32& philox) {
    std::vector<Index> list;
    for (const Index u : graph.list(node))
        if (u != node) list.push_back(u);
    std::sort(list.begin(), list.end());
    list.erase(std::unique(list.begin(), list.end()), list.end());
    const auto degree = static_cast<i64>(list.size());
    if (degree < 2) return 0;
    const auto linked = [&](i64 a, i64 b) {
        const Index u = list[a], v = list[b];
        return has_edge(graph, u, v, sorted) || has_edge(graph, v, u, sorted);
    };
    i64 closed = 0, tried = 0;
    if (degree * (degree - 1) / 2 <= pairs) {
        for (i64 a = 0; a < degree; ++a)
            for (i64 b = a + 1; b < degree; ++b, ++tried) closed += linked(a, b) ? 1 : 0;
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

// Returns the mean over `nodes` of the share of `pairs` random pairs of distinct in-neighbours that are linked either
// way; nodes with fewer than two distinct in-neighbours count 0. `sorted`: every list ascends.
template <typename Index>
double clustering(Ids indptr, std::span<const Index> indices, Ids nodes, int pairs, bool sorted, u64 seed,
                  int threads) {
    const Topology<Index> graph{indptr, indices, {}, {}, {}};
    std::vector<double> local(nodes.size());
    const Philox4x32 philox(seed);
    parallel(static_cast<i64>(nodes.size()), 64, threads, [&](size_t begin, size_t end, int) {
        for (size_t k = begin; k < end; ++k) local[k] = local_clustering(graph, nodes[k], pairs, sorted, philox);
    });
    double sum = 0;  // in order, so that the mean does not depend on the threads
    for (const double value : local) sum += value;
    return nodes.empty() ? 0 : sum / static_cast<double>(nodes.size());
}

// Counts the edges into `nodes` whose ends have the same label, and all of them, without unlabelled (negative) ends.
template <typename Index>
std::pair<i64, i64> homophily(Ids indptr, std::span<const Index> indices, Ids labels, Ids nodes, int threads) {
    const Topology<Index> graph{indptr, indices, {}, {}, {}};
    if (labels.size() != graph.num_nodes()) throw std::invalid_argument("homophily needs one label for each node");
    std::atomic<i64> same{0}, edges{0};
    parallel(static_cast<i64>(nodes.size()), 1024, threads, [&](size_t begin, size_t end, int) {
        i64 own_same = 0, own_edges = 0;
        for (size_t k = begin; k < end; ++k) {
            const auto list = graph.list(nodes[k]);
            const i64 label = labels[nodes[k]];
            if (label < 0) continue;
            for (const Index u : list) {
                const i64 other = labels[checked_source(u, graph.num_nodes())];
                own_edges += other >= 0 ? 1 : 0;
                own_same += other == label ? 1 : 0;
            }
        }
        same += own_same;
        edges += own_edges;
    });
    return {same, edges};
}

// counts[v] += out-degree of v.
template <typename Index>
void count_sources(std::span<const Index> indices, std::span<i64> counts, int threads) {
    parallel(static_cast<i64>(indices.size()), 1 << 18, threads, [&](size_t begin, size_t end, int) {
        for (size_t e = begin; e < end; ++e) {
            const auto source = static_cast<size_t>(indices[e]);
            if (source >= counts.size()) refuse_source(e, indices[e], counts.size());
            std::atomic_ref<i64>(counts[source]).fetch_add(1, std::memory_order_relaxed);
        }
    });
}

// Sorts every list in place.
template <typename Index>
void sort_lists(Ids indptr, std::span<Index> indices, int threads) {
    const Topology<Index> graph{indptr, indices, {}, {}, {}};
    parallel(static_cast<i64>(graph.num_nodes()), 4096, threads, [&](size_t begin, size_t end, int) {
        for (size_t v = begin; v < end; ++v) {
            static_cast<void>(graph.list(static_cast<i64>(v)));
            std::sort(indices.begin() + indptr[v], indices.begin() + indptr[v + 1]);
        }
    });
}

// Splits the nodes into communities of about equal size by linear deterministic greedy placement, streamed `sweeps`
// times (Stanton and Kliot, KDD 2012, section 4; restreaming: Nishimura and Ugander, KDD 2013).
template <typename Index>
void communities(Ids indptr, std::span<const Index> indices, i32 number, int sweeps, u64 seed, std::span<i64> out) {
    const Topology<Index> graph{indptr, indices, {}, {}, {}};
    const auto n = static_cast<i64>(graph.num_nodes());
    if (number < 1 || static_cast<i64>(out.size()) != n)
        throw std::invalid_argument("communities needs one place for each node");
    const double capacity = 1.1 * static_cast<double>(n) / number + 1;
    std::vector<i64> size(number), links(number);
    std::vector<i32> touched, places(n, -1);  // 32 bits, so that more places stay in cache
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        const Permutation order(n, seed, static_cast<u32>(sweep), static_cast<u32>(Purpose::kLabel));
        for (i64 k = 0; k < n; ++k) {
            const auto v = static_cast<i64>(order.forward(k));
            i32& place = places[v];
            if (place >= 0) --size[place];
            touched.clear();
            for (const Index u : graph.list(v)) {
                const i32 c = places[checked_source(u, graph.num_nodes())];
                if (c >= 0 && u != v && links[c]++ == 0) touched.push_back(c);
            }
            double best = 0;
            i32 chosen = -1;
            std::sort(touched.begin(), touched.end());
            for (const i32 c : touched) {
                const double score = static_cast<double>(links[c]) * (1 - static_cast<double>(size[c]) / capacity);
                if (score > best) {
                    best = score;
                    chosen = c;
                }
                links[c] = 0;
            }
            if (chosen < 0)  // no placed neighbour: stay, or join the smallest community
                chosen = place >= 0 ? place : static_cast<i32>(std::ranges::min_element(size) - size.begin());
            place = chosen;
            ++size[place];
        }
    }
    std::copy(places.begin(), places.end(), out.begin());
}

template <typename Index>
void bind_index(nb::module_& m) {
    m.def("clustering", &clustering<Index>, "indptr"_a, "indices"_a.noconvert(), "nodes"_a, "pairs"_a, "sorted"_a,
          "seed"_a, "threads"_a, released());
    m.def("homophily", &homophily<Index>, "indptr"_a, "indices"_a.noconvert(), "labels"_a, "nodes"_a, "threads"_a,
          released());
    m.def("count_sources", &count_sources<Index>, "indices"_a.noconvert(), "counts"_a, "threads"_a, released());
    m.def("sort_lists", &sort_lists<Index>, "indptr"_a, "indices"_a, "threads"_a, released());
    m.def("communities", &communities<Index>, "indptr"_a, "indices"_a.noconvert(), "number"_a, "sweeps"_a, "seed"_a,
          "out"_a, released());
}

}  // namespace

void bind_measures(nb::module_& m) {
    bind_index<i32>(m);
    bind_index<i64>(m);
}

}  // namespace outcore
