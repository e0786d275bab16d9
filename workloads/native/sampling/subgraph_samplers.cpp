// Layer-wise and subgraph sampling: whole neighbour lists are read by the team, drawn from and placed by one thread.
#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/draws.hpp"
#include "base/node_table.hpp"
#include "base/refuse.hpp"
#include "base/team.hpp"
#include "sampling/sampler.hpp"

namespace outcore {
namespace {

constexpr u32 kNotTaken = std::numeric_limits<u32>::max();
constexpr size_t kChunk = 64;  // destinations whose lists one member reads at a time

// Fills the table of 64-bit keys with `nodes`, node i at value i, and reserves slots for `more` others.
void fill(NodeTable<u64>& table, std::span<const i64> nodes, size_t more) {
    if (nodes.size() + more >= size_t{1} << 31)
        refuse<std::invalid_argument>("one hop has ", more, " edges, more than 32-bit positions reach");
    table.reset(nodes.size() + more);
    table.clear(0, table.slots());
    for (size_t i = 0; i < nodes.size(); ++i) {
        bool fresh = false;
        const u32 slot = table.insert<false>(static_cast<u64>(nodes[i]), fresh);
        if (!fresh) refuse_repeated_seed(nodes[i]);
        table.value(slot) = static_cast<u32>(i);
    }
}

template <class Index>
void count_lists(const Topology<Index>& graph, std::span<const i64> nodes, Sample& sample) {
    for (const i64 node : nodes) {
        const size_t degree = graph.list(node).size();
        sample.edge_reads += static_cast<i64>(degree);
        sample.list_reads += degree > 0;
        sample.list_hits += degree > 0 && graph.cached(node);
    }
}

// Raises the peak working memory of all calls to at least `bytes`.
void raise_peak(std::atomic<size_t>& peak, size_t bytes) noexcept {
    size_t most = peak.load(std::memory_order_relaxed);
    while (most < bytes && !peak.compare_exchange_weak(most, bytes, std::memory_order_relaxed)) {}
}

struct Candidate {
    i64 node, name;
    u32 slot;
    double weight, priority;
};

template <class Index>
class LayerwiseSampler final : public NeighborSampler {
public:
    LayerwiseSampler(const Topology<Index>& graph, SamplerOptions options)
        : graph_(graph), options_(std::move(options)) {}

    Sample sample(u64 epoch, u64 batch, std::span<const i64> seeds) override {
        Sample sample;
        std::vector<i64> nodes(seeds.begin(), seeds.end());
        for (const i64 node : nodes) checked_seed(node, graph_.num_nodes());
        Team team(options_.threads);
        for (size_t hop = 0; hop < options_.fanout.size(); ++hop) {
            count_lists(graph_, nodes, sample);
            sample.hops.push_back(expand(team, epoch, batch, static_cast<u32>(hop), nodes));
        }
        sample.nodes = Buffer<i64>(nodes.size());
        for (size_t i = 0; i < nodes.size(); ++i) sample.nodes[i] = graph_.name(nodes[i]);
        if (graph_.renumbered()) {
            sample.local = Buffer<i64>(nodes.size());
            std::copy(nodes.begin(), nodes.end(), sample.local.data.get());
        }
        return sample;
    }

    size_t scratch_bytes() override { return peak_; }

private:
    SampledHop expand(Team& team, u64 epoch, u64 batch, u32 hop, std::vector<i64>& nodes) {
        const size_t count = nodes.size();
        std::vector<size_t> starts(count + 1, 0);
        for (size_t i = 0; i < count; ++i) starts[i + 1] = starts[i] + graph_.list(nodes[i]).size();
        const size_t edges = starts[count];
        Buffer<u64> sources(edges);
        team.share((count + kChunk - 1) / kChunk, [&](size_t chunk) {
            for (size_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
                u64* out = sources.data.get() + starts[i];
                for (const Index source : graph_.list(nodes[i])) *out++ = checked_source(source, graph_.num_nodes());
            }
        });

        NodeTable<u64> table;
        fill(table, nodes, static_cast<size_t>(std::min<u64>(edges, graph_.num_nodes())));
        Buffer<u32> slots(edges);
        std::vector<Candidate> candidates;
        for (size_t i = 0; i < count; ++i) {
            const auto degree = static_cast<double>(starts[i + 1] - starts[i]);
            for (size_t e = starts[i]; e < starts[i + 1]; ++e) {
                if (e + 16 < edges) table.prefetch(sources[e + 16]);
                bool fresh = false;
                slots[e] = table.insert<false>(sources[e], fresh);
                u32& value = table.value(slots[e]);
                if (fresh) {
                    value = static_cast<u32>(count + candidates.size());
                    const auto node = static_cast<i64>(sources[e]);
                    candidates.push_back({node, graph_.name(node), slots[e], 0.0, 0.0});
                }
                if (value >= count) candidates[value - count].weight += 1.0 / (degree * degree);
            }
        }
        raise_peak(peak_, edges * 12 + table.bytes() + candidates.capacity() * sizeof(Candidate) + starts.size() * 16);
        for (const Candidate& candidate : candidates) table.value(candidate.slot) = kNotTaken;
        draw(candidates, epoch, batch, hop);
        for (size_t i = 0; i < candidates.size(); ++i) {
            table.value(candidates[i].slot) = static_cast<u32>(count + i);
            nodes.push_back(candidates[i].node);
        }

        SampledHop result;
        result.num_dst = static_cast<i64>(count);
        result.num_src = static_cast<i64>(nodes.size());
        result.indptr = Buffer<i64>(count + 1);
        size_t kept = 0;
        for (size_t i = 0; i < count; ++i) {
            result.indptr[i] = static_cast<i64>(kept);
            for (size_t e = starts[i]; e < starts[i + 1]; ++e)
                if (const u32 value = table.value(slots[e]); value != kNotTaken) slots[kept++] = value;
        }
        result.indptr[count] = static_cast<i64>(kept);
        result.indices = Buffer<i32>(kept);
        for (size_t e = 0; e < kept; ++e) result.indices[e] = static_cast<i32>(slots[e]);
        return result;
    }

    // Keeps the drawn candidates, by ascending original id.
    void draw(std::vector<Candidate>& candidates, u64 epoch, u64 batch, u32 hop) const {
        const i64 fanout = options_.fanout[hop];
        if (fanout >= 0 && static_cast<u64>(fanout) < candidates.size()) {
            for (Candidate& candidate : candidates) {
                const auto name = stream_name(epoch, batch, hop, static_cast<u64>(candidate.name));
                const u64 word = PhiloxStream(Philox4x32(options_.seed), name).next64() >> 11;
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

    Topology<Index> graph_;
    SamplerOptions options_;
    std::atomic<size_t> peak_{0};
};

template <class Index>
class ShadowSampler final : public NeighborSampler {
public:
    ShadowSampler(const Topology<Index>& graph, SamplerOptions options)
        : graph_(graph), threads_(options.threads), reached_(make_neighbor_sampler(graph, std::move(options))) {}

    Sample sample(u64 epoch, u64 batch, std::span<const i64> seeds) override {
        Sample sample = reached_->sample(epoch, batch, seeds);
        const Buffer<i64>& ids = graph_.renumbered() ? sample.local : sample.nodes;
        const std::span<const i64> nodes(ids.data.get(), ids.size);
        count_lists(graph_, nodes, sample);
        sample.hops.clear();
        sample.hops.push_back(induce(nodes));
        return sample;
    }

    size_t scratch_bytes() override { return peak_ + reached_->scratch_bytes(); }

private:
    SampledHop induce(std::span<const i64> nodes) {
        NodeTable<u64> table;
        fill(table, nodes, 0);
        const size_t count = nodes.size(), chunks = (count + kChunk - 1) / kChunk;
        SampledHop result;
        result.num_dst = result.num_src = static_cast<i64>(count);
        result.indptr = Buffer<i64>(count + 1);
        std::vector<std::vector<i32>> parts(chunks);
        Team team(threads_);
        team.share(chunks, [&](size_t chunk) {
            std::vector<i32>& part = parts[chunk];
            for (size_t i = chunk * kChunk; i < std::min(count, (chunk + 1) * kChunk); ++i) {
                const size_t before = part.size();
                for (const Index source : graph_.list(nodes[i])) {
                    const u32 value = table.find(checked_source(source, graph_.num_nodes()));
                    if (value != kNotTaken) part.push_back(static_cast<i32>(value));
                }
                result.indptr[i + 1] = static_cast<i64>(part.size() - before);
            }
        });
        result.indptr[0] = 0;
        for (size_t i = 0; i < count; ++i) result.indptr[i + 1] += result.indptr[i];
        result.indices = Buffer<i32>(static_cast<size_t>(result.indptr[count]));
        i32* out = result.indices.data.get();
        size_t held = table.bytes();
        for (const auto& part : parts) {
            out = std::copy(part.begin(), part.end(), out);
            held += part.capacity() * sizeof(i32);
        }
        raise_peak(peak_, held);
        return result;
    }

    Topology<Index> graph_;
    int threads_;
    std::unique_ptr<NeighborSampler> reached_;
    std::atomic<size_t> peak_{0};
};

}  // namespace

template <class Index>
std::unique_ptr<NeighborSampler> make_subgraph_sampler(const std::string& kind, const Topology<Index>& graph,
                                                       SamplerOptions options) {
    if (kind == "shadow") return std::make_unique<ShadowSampler<Index>>(graph, std::move(options));
    if (kind != "layerwise") refuse<std::invalid_argument>("there is no sampler ", kind);
    static_cast<void>(graph.name_bound());
    return std::make_unique<LayerwiseSampler<Index>>(graph, std::move(options));
}

template std::unique_ptr<NeighborSampler> make_subgraph_sampler(const std::string&, const Topology<i32>&,
                                                                SamplerOptions);
template std::unique_ptr<NeighborSampler> make_subgraph_sampler(const std::string&, const Topology<i64>&,
                                                                SamplerOptions);

}  // namespace outcore
