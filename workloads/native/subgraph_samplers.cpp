// Layer-wise and subgraph sampling: whole neighbour lists are read by the team, drawn from and placed by one thread.
#include "subgraph_samplers.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "draws.hpp"
#include "node_table.hpp"
#include "team.hpp"

namespace outcore {
namespace {

constexpr std::uint32_t kNotTaken = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kChunk = 64;  // destinations whose lists one member reads at a time

// The graph's lists for both samplers, checked as they are read.
template <class Index>
class Lists {
public:
    explicit Lists(const Topology<Index>& graph) : graph_(graph) {}

    std::uint64_t num_nodes() const noexcept { return graph_.indptr.size() - 1; }
    bool renumbered() const noexcept { return !graph_.names.empty(); }
    std::int64_t name(std::int64_t node) const noexcept {
        return renumbered() ? graph_.names[static_cast<std::size_t>(node)] : node;
    }
    bool cached(std::int64_t node) const noexcept {
        return !graph_.address.empty() && graph_.address[static_cast<std::size_t>(node)] >= 0;
    }

    std::span<const Index> of(std::int64_t node) const {
        const auto place = static_cast<std::size_t>(node);
        const std::int64_t start = graph_.indptr[place], end = graph_.indptr[place + 1];
        const std::int64_t from = cached(node) ? graph_.address[place] : start;
        const std::span<const Index> whole = cached(node) ? graph_.lists : graph_.indices;
        if (start < 0 || end < start || static_cast<std::uint64_t>(from) > whole.size() ||
            static_cast<std::uint64_t>(end - start) > whole.size() - static_cast<std::uint64_t>(from))
            throw std::out_of_range("the neighbour list of node " + std::to_string(node) + " is [" +
                                    std::to_string(start) + ", " + std::to_string(end) + ") of " +
                                    std::to_string(graph_.indices.size()) + " edges");
        return whole.subspan(static_cast<std::size_t>(from), static_cast<std::size_t>(end - start));
    }

    // Checks a source: throws std::out_of_range for an unknown node.
    std::uint64_t id(Index source) const {
        const auto node = static_cast<std::uint64_t>(source);
        if (node >= num_nodes())
            throw std::out_of_range("an edge comes from node " + std::to_string(source) + ", which is not one of " +
                                    std::to_string(num_nodes()));
        return node;
    }

private:
    Topology<Index> graph_;
};

// Fills the table of 64-bit keys with `nodes`, node i at value i, and reserves slots for `more` others.
void fill(NodeTable<std::uint64_t>& table, std::span<const std::int64_t> nodes, std::size_t more) {
    if (nodes.size() + more >= std::size_t{1} << 31)
        throw std::invalid_argument("one hop has " + std::to_string(more) + " edges, more than 32-bit positions reach");
    table.reset(nodes.size() + more);
    table.clear(0, table.slots());
    for (std::size_t i = 0; i < nodes.size(); ++i) {
        bool fresh = false;
        const std::uint32_t slot = table.insert<false>(static_cast<std::uint64_t>(nodes[i]), fresh);
        if (!fresh)
            throw std::invalid_argument("seed node " + std::to_string(nodes[i]) + " stands twice in one batch");
        table.value(slot) = static_cast<std::uint32_t>(i);
    }
}

template <class T>
Buffer<T> to_buffer(std::span<const T> values) {
    Buffer<T> result(values.size());
    std::copy(values.begin(), values.end(), result.data.get());
    return result;
}

template <class Index>
Buffer<std::int64_t> names_of(const Lists<Index>& lists, std::span<const std::int64_t> nodes) {
    Buffer<std::int64_t> result(nodes.size());
    for (std::size_t i = 0; i < nodes.size(); ++i) result[i] = lists.name(nodes[i]);
    return result;
}

template <class Index>
void count_lists(const Lists<Index>& lists, std::span<const std::int64_t> nodes, Sample& sample) {
    for (const std::int64_t node : nodes) {
        const std::size_t degree = lists.of(node).size();
        sample.edge_reads += static_cast<std::int64_t>(degree);
        sample.list_reads += degree > 0;
        sample.list_hits += degree > 0 && lists.cached(node);
    }
}

// Peak working memory of any call, in bytes.
class Peak {
public:
    void saw(std::size_t bytes) noexcept {
        std::size_t most = bytes_.load(std::memory_order_relaxed);
        while (most < bytes && !bytes_.compare_exchange_weak(most, bytes, std::memory_order_relaxed)) {
        }
    }
    std::size_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

private:
    std::atomic<std::size_t> bytes_{0};
};

struct Candidate {
    std::int64_t node, name;
    std::uint32_t slot;
    double weight, priority;
};

template <class Index>
class LayerwiseSampler final : public NeighborSampler {
public:
    LayerwiseSampler(const Topology<Index>& graph, SamplerOptions options)
        : lists_(graph), options_(std::move(options)) {}

    Sample sample(std::uint64_t epoch, std::uint64_t batch, std::span<const std::int64_t> seeds) override {
        Sample sample;
        std::vector<std::int64_t> nodes(seeds.begin(), seeds.end());
        for (const std::int64_t node : nodes)
            if (static_cast<std::uint64_t>(node) >= lists_.num_nodes())
                throw std::invalid_argument("seed node " + std::to_string(node) + " is not one of the graph's " +
                                            std::to_string(lists_.num_nodes()) + " nodes");
        Team team(options_.threads);
        for (std::size_t hop = 0; hop < options_.fanout.size(); ++hop) {
            count_lists(lists_, nodes, sample);
            sample.hops.push_back(expand(team, epoch, batch, static_cast<std::uint32_t>(hop), nodes));
        }
        sample.nodes = names_of(lists_, nodes);
        if (lists_.renumbered()) sample.local = to_buffer(std::span<const std::int64_t>(nodes));
        return sample;
    }

    std::size_t scratch_bytes() override { return peak_.bytes(); }

private:
    SampledHop expand(Team& team, std::uint64_t epoch, std::uint64_t batch, std::uint32_t hop,
                      std::vector<std::int64_t>& nodes) {
        const std::size_t count = nodes.size();
        std::vector<std::size_t> starts(count + 1, 0);
        for (std::size_t i = 0; i < count; ++i) starts[i + 1] = starts[i] + lists_.of(nodes[i]).size();
        const std::size_t edges = starts[count];
        Buffer<std::uint64_t> sources(edges);
        team.share((count + kChunk - 1) / kChunk, [&](std::size_t chunk) {
            for (std::size_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
                std::uint64_t* out = sources.data.get() + starts[i];
                for (const Index source : lists_.of(nodes[i])) *out++ = lists_.id(source);
            }
        });

        NodeTable<std::uint64_t> table;
        fill(table, nodes, static_cast<std::size_t>(std::min<std::uint64_t>(edges, lists_.num_nodes())));
        Buffer<std::uint32_t> slots(edges);
        std::vector<Candidate> candidates;
        for (std::size_t i = 0; i < count; ++i) {
            const auto degree = static_cast<double>(starts[i + 1] - starts[i]);
            for (std::size_t e = starts[i]; e < starts[i + 1]; ++e) {
                if (e + 16 < edges) table.prefetch(sources[e + 16]);
                bool fresh = false;
                slots[e] = table.insert<false>(sources[e], fresh);
                std::uint32_t& value = table.value(slots[e]);
                if (fresh) {
                    value = static_cast<std::uint32_t>(count + candidates.size());
                    const auto node = static_cast<std::int64_t>(sources[e]);
                    candidates.push_back({node, lists_.name(node), slots[e], 0.0, 0.0});
                }
                if (value >= count) candidates[value - count].weight += 1.0 / (degree * degree);
            }
        }
        peak_.saw(edges * 12 + table.bytes() + candidates.capacity() * sizeof(Candidate) + starts.size() * 16);
        for (const Candidate& candidate : candidates) table.value(candidate.slot) = kNotTaken;
        draw(candidates, epoch, batch, hop);
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            table.value(candidates[i].slot) = static_cast<std::uint32_t>(count + i);
            nodes.push_back(candidates[i].node);
        }

        SampledHop result;
        result.num_dst = static_cast<std::int64_t>(count);
        result.num_src = static_cast<std::int64_t>(nodes.size());
        result.indptr = Buffer<std::int64_t>(count + 1);
        std::size_t kept = 0;
        for (std::size_t i = 0; i < count; ++i) {
            result.indptr[i] = static_cast<std::int64_t>(kept);
            for (std::size_t e = starts[i]; e < starts[i + 1]; ++e)
                if (const std::uint32_t value = table.value(slots[e]); value != kNotTaken) slots[kept++] = value;
        }
        result.indptr[count] = static_cast<std::int64_t>(kept);
        result.indices = Buffer<std::int32_t>(kept);
        for (std::size_t e = 0; e < kept; ++e) result.indices[e] = static_cast<std::int32_t>(slots[e]);
        return result;
    }

    // Keeps the drawn candidates, by ascending original id.
    void draw(std::vector<Candidate>& candidates, std::uint64_t epoch, std::uint64_t batch, std::uint32_t hop) const {
        const std::int64_t fanout = options_.fanout[hop];
        if (fanout >= 0 && static_cast<std::uint64_t>(fanout) < candidates.size()) {
            for (Candidate& candidate : candidates) {
                const auto name = stream_name(epoch, batch, hop, static_cast<std::uint64_t>(candidate.name));
                const std::uint64_t word = PhiloxStream(Philox4x32(options_.seed), name).next64() >> 11;
                candidate.priority = candidate.weight / (static_cast<double>(word + 1) * 0x1p-53);
            }
            const auto last = candidates.begin() + fanout;
            std::nth_element(candidates.begin(), last, candidates.end(), [](const auto& a, const auto& b) {
                return a.priority != b.priority ? a.priority > b.priority : a.name < b.name;
            });
            candidates.erase(last, candidates.end());
        }
        std::sort(candidates.begin(), candidates.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    }

    Lists<Index> lists_;
    SamplerOptions options_;
    Peak peak_;
};

template <class Index>
class ShadowSampler final : public NeighborSampler {
public:
    ShadowSampler(const Topology<Index>& graph, SamplerOptions options)
        : lists_(graph), threads_(options.threads), reached_(make_neighbor_sampler(graph, std::move(options))) {}

    Sample sample(std::uint64_t epoch, std::uint64_t batch, std::span<const std::int64_t> seeds) override {
        Sample sample = reached_->sample(epoch, batch, seeds);
        const Buffer<std::int64_t>& ids = lists_.renumbered() ? sample.local : sample.nodes;
        const std::span<const std::int64_t> nodes(ids.data.get(), ids.size);
        count_lists(lists_, nodes, sample);
        sample.hops.clear();
        sample.hops.push_back(induce(nodes));
        return sample;
    }

    std::size_t scratch_bytes() override { return peak_.bytes() + reached_->scratch_bytes(); }

private:
    SampledHop induce(std::span<const std::int64_t> nodes) {
        NodeTable<std::uint64_t> table;
        fill(table, nodes, 0);
        const std::size_t count = nodes.size(), chunks = (count + kChunk - 1) / kChunk;
        SampledHop result;
        result.num_dst = result.num_src = static_cast<std::int64_t>(count);
        result.indptr = Buffer<std::int64_t>(count + 1);
        std::vector<std::vector<std::int32_t>> parts(chunks);
        Team team(threads_);
        team.share(chunks, [&](std::size_t chunk) {
            std::vector<std::int32_t>& part = parts[chunk];
            for (std::size_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
                const std::size_t before = part.size();
                for (const Index source : lists_.of(nodes[i])) {
                    const std::uint32_t value = table.find(lists_.id(source));
                    if (value != kNotTaken) part.push_back(static_cast<std::int32_t>(value));
                }
                result.indptr[i + 1] = static_cast<std::int64_t>(part.size() - before);
            }
        });
        result.indptr[0] = 0;
        for (std::size_t i = 0; i < count; ++i) result.indptr[i + 1] += result.indptr[i];
        result.indices = Buffer<std::int32_t>(static_cast<std::size_t>(result.indptr[count]));
        std::int32_t* out = result.indices.data.get();
        std::size_t held = table.bytes();
        for (const auto& part : parts) {
            out = std::copy(part.begin(), part.end(), out);
            held += part.capacity() * sizeof(std::int32_t);
        }
        peak_.saw(held);
        return result;
    }

    Lists<Index> lists_;
    int threads_;
    std::unique_ptr<NeighborSampler> reached_;
    Peak peak_;
};

}  // namespace

template <class Index>
std::unique_ptr<NeighborSampler> make_layerwise_sampler(const Topology<Index>& graph, SamplerOptions options) {
    static_cast<void>(name_bound(graph));
    return std::make_unique<LayerwiseSampler<Index>>(graph, std::move(options));
}

template <class Index>
std::unique_ptr<NeighborSampler> make_shadow_sampler(const Topology<Index>& graph, SamplerOptions options) {
    return std::make_unique<ShadowSampler<Index>>(graph, std::move(options));
}

template std::unique_ptr<NeighborSampler> make_layerwise_sampler(const Topology<std::int32_t>&, SamplerOptions);
template std::unique_ptr<NeighborSampler> make_layerwise_sampler(const Topology<std::int64_t>&, SamplerOptions);
template std::unique_ptr<NeighborSampler> make_shadow_sampler(const Topology<std::int32_t>&, SamplerOptions);
template std::unique_ptr<NeighborSampler> make_shadow_sampler(const Topology<std::int64_t>&, SamplerOptions);

}  // namespace outcore
