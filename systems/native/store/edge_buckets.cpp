// Partitions and edge buckets: assigns nodes to partitions, sorts edges by bucket, and restores buffered lists.
#include "store/edge_buckets.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/team.hpp"

namespace outcore {
namespace {

__extension__ using Wide = unsigned __int128;

// SplitMix64 in counter form, reduced to [0, bound) without bias by rejection.
class Dealer {
public:
    explicit Dealer(u64 seed) : state_(seed) {}

    u64 below(u64 bound) {
        const u64 floor = (0 - bound) % bound;
        for (;;) {
            const auto wide = static_cast<Wide>(next()) * bound;
            if (static_cast<u64>(wide) >= floor) return static_cast<u64>(wide >> 64);
        }
    }

private:
    u64 next() {
        u64 mixed = state_ += 0x9E3779B97F4A7C15U;
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9U;
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EBU;
        return mixed ^ (mixed >> 31);
    }

    u64 state_;
};

}  // namespace

void assign_partitions(std::span<const i64> first, u64 size, u64 seed, std::span<u8> partition_of) {
    const u64 nodes = partition_of.size();
    if (size == 0 || (nodes + size - 1) / size > max_partitions)
        throw std::out_of_range("more than " + std::to_string(max_partitions) + " partitions");
    std::vector<bool> placed(nodes);
    for (size_t i = 0; i < first.size(); ++i) {
        const auto node = static_cast<u64>(first[i]);
        if (node >= nodes || placed[node])
            throw std::out_of_range("node " + std::to_string(first[i]) + " is not one of " + std::to_string(nodes) +
                                    ", or stands twice");
        placed[node] = true;
        partition_of[node] = static_cast<u8>(i / size);
    }
    // Shuffles the remaining places among the remaining nodes: Fisher-Yates over those nodes alone.
    std::vector<u8> places(nodes - first.size());
    for (size_t i = 0; i < places.size(); ++i) places[i] = static_cast<u8>((first.size() + i) / size);
    Dealer dealer(seed);
    for (size_t left = places.size(), node = 0; left > 0; ++node) {
        if (placed[node]) continue;
        std::swap(places[left - 1], places[dealer.below(left)]);
        partition_of[node] = places[--left];
    }
}

template <class Index>
void count_buckets(const EdgeRun<Index>& run, std::span<const u8> partition_of, size_t partitions,
                   std::span<i64> counts) {
    i64 edge = run.first_edge;
    for_each_list(run, partition_of.size(), [&](size_t node, std::span<const Index> sources) {
        if (partition_of[node] >= partitions)
            throw std::out_of_range("a node is in partition " + std::to_string(partition_of[node]) + " of " +
                                    std::to_string(partitions));
        i64* row = counts.data() + partition_of[node] * partitions;
        for (const Index source : sources) {
            if (static_cast<u64>(source) >= partition_of.size())
                throw std::out_of_range("edge " + std::to_string(edge) + " comes from node " + std::to_string(source) +
                                        ", which is not one of " + std::to_string(partition_of.size()));
            const u8 column = partition_of[static_cast<size_t>(source)];
            if (column >= partitions)
                throw std::out_of_range("a node is in partition " + std::to_string(column) + " of " +
                                        std::to_string(partitions));
            ++row[column];
            ++edge;
        }
    });
}

template <class Index>
void partitions_of(std::span<const Index> sources, std::span<const u8> partition_of, std::span<u8> order,
                   unsigned threads) {
    if (order.size() < sources.size()) throw std::out_of_range("no room for the order");
    std::atomic<bool> wrong{false};
    parallel(sources.size(), size_t{1} << 16, threads, [&](size_t begin, size_t end, int) {
        for (size_t i = begin; i < end; ++i) {
            const auto source = static_cast<u64>(sources[i]);
            if (source >= partition_of.size()) {
                wrong = true;
                return;
            }
            order[i] = partition_of[source];
        }
    });
    if (wrong) throw std::out_of_range("an edge comes from a node that the graph has not");
}

template <class Index>
void place_edges(std::span<const Index> sources, std::span<const u8> order, std::span<i64> next, std::span<Index> out) {
    if (order.size() < sources.size() || next.size() > max_partitions)
        throw std::out_of_range("no order for the edges");
    std::array<i64, max_partitions> at;
    at.fill(-1);
    std::copy(next.begin(), next.end(), at.begin());
    for (size_t i = 0; i < sources.size(); ++i) {
        const i64 place = at[order[i]]++;
        if (static_cast<u64>(place) >= out.size()) throw std::out_of_range("more edges than were counted");
        out[static_cast<size_t>(place)] = sources[i];
    }
    std::copy_n(at.begin(), next.size(), next.begin());
}

size_t count_kept(const PartitionLists& lists, std::span<const i16> slot_of, std::span<i64> indptr,
                  std::span<u8> kept) {
    if (lists.degrees.size() != lists.nodes.size()) throw std::out_of_range("nodes and degrees differ in length");
    std::array<i16, max_partitions> slots;
    slots.fill(-1);
    std::copy_n(slot_of.begin(), std::min(slot_of.size(), slots.size()), slots.begin());
    size_t at = 0, edge = 0;
    for (size_t i = 0; i < lists.nodes.size(); ++i) {
        const auto node = static_cast<u64>(lists.nodes[i]);
        const size_t end = edge + lists.degrees[i], before = at;
        if (indptr.empty() || node >= indptr.size() - 1 || end > lists.order.size())
            throw std::out_of_range("the lists of the partition are longer than its order, or of no node");
        if (kept.size() - at >= end - edge) {
            // All of them would fit: writing each byte and then advancing only for a kept edge saves the branch.
            for (; edge < end; ++edge) {
                const i16 slot = slots[lists.order[edge]];
                kept[at] = static_cast<u8>(slot);
                at += slot >= 0;
            }
        }
        for (; edge < end; ++edge) {
            const i16 slot = slots[lists.order[edge]];
            if (slot < 0) continue;
            if (at == kept.size()) throw std::out_of_range("more edges are buffered than there is room for");
            kept[at++] = static_cast<u8>(slot);
        }
        indptr[node + 1] = static_cast<i64>(at - before);
    }
    if (edge != lists.order.size()) throw std::out_of_range("the order of the partition is longer than its lists");
    return at;
}

template <class Index>
void fill_lists(std::span<const i64> nodes, std::span<const u8> kept, std::span<const i64> indptr,
                std::span<const Index> buckets, std::span<const i64> starts, std::span<const i64> lengths,
                std::span<Index> indices) {
    if (starts.size() != lengths.size() || starts.size() > max_partitions)
        throw std::out_of_range("starts and lengths differ in length");
    std::array<i64, max_partitions> next{}, left{};
    std::array<i64, max_partitions> used{};
    for (size_t slot = 0; slot < starts.size(); ++slot) {
        if (starts[slot] < 0 || lengths[slot] < 0 ||
            static_cast<u64>(starts[slot]) + static_cast<u64>(lengths[slot]) > buckets.size())
            throw std::out_of_range("a bucket lies outside what was read");
        next[slot] = starts[slot];
        left[slot] = lengths[slot];
    }
    // One check for all edges, so that the loop below needs none.
    for (const u8 slot : kept) ++used[slot];
    for (size_t slot = 0; slot < max_partitions; ++slot)
        if (used[slot] != left[slot])
            throw std::out_of_range("a bucket has " + std::to_string(left[slot]) + " edges, the lists name " +
                                    std::to_string(used[slot]));
    size_t edge = 0;
    for (const i64 node : nodes) {
        const auto index = static_cast<size_t>(node);
        if (indptr.empty() || index >= indptr.size() - 1) throw std::out_of_range("a node that the graph has not");
        const i64 begin = indptr[index], end = indptr[index + 1];
        if (begin < 0 || end < begin || static_cast<u64>(end) > indices.size() ||
            edge + static_cast<size_t>(end - begin) > kept.size())
            throw std::out_of_range("the lists are longer than what was kept of them");
        for (i64 at = begin; at < end; ++at)
            indices[static_cast<size_t>(at)] = buckets[static_cast<size_t>(next[kept[edge++]]++)];
    }
    if (edge != kept.size()) throw std::out_of_range("edges were kept that no list has");
}

template void count_buckets(const EdgeRun<i32>&, std::span<const u8>, size_t, std::span<i64>);
template void count_buckets(const EdgeRun<i64>&, std::span<const u8>, size_t, std::span<i64>);
template void partitions_of(std::span<const i32>, std::span<const u8>, std::span<u8>, unsigned);
template void partitions_of(std::span<const i64>, std::span<const u8>, std::span<u8>, unsigned);
template void place_edges(std::span<const i32>, std::span<const u8>, std::span<i64>, std::span<i32>);
template void place_edges(std::span<const i64>, std::span<const u8>, std::span<i64>, std::span<i64>);
template void fill_lists(std::span<const i64>, std::span<const u8>, std::span<const i64>, std::span<const i32>,
                         std::span<const i64>, std::span<const i64>, std::span<i32>);
template void fill_lists(std::span<const i64>, std::span<const u8>, std::span<const i64>, std::span<const i64>,
                         std::span<const i64>, std::span<const i64>, std::span<i64>);

}  // namespace outcore
