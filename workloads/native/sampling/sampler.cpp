// The neighbour sampler: each hop counts, draws, gathers and relabels in short groups, so that the cache misses of many
// destinations overlap, on one thread or on a team.
#include "sampling/sampler.hpp"

#include <unistd.h>

#include <array>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "base/draws.hpp"
#include "base/node_table.hpp"
#include "base/radix.hpp"
#include "base/refuse.hpp"
#include "base/team.hpp"

namespace outcore {
namespace {

constexpr size_t kGroupEdges = 512;  // edges whose cache misses are in flight together
constexpr size_t kAhead = 16;        // destinations whose list bounds are fetched ahead
constexpr size_t kParallelItems = 4096;
constexpr u64 kCached = u64{1} << 63;  // marks an offset into the cached lists

// Edges that are drawn and looked up together.
struct Group {
    Scratch<u64> offsets;  // into `indices`, or with kCached into the cached lists
    size_t edges = 0;
    u32* out = nullptr;  // slots of their sources
};

// Working memory of a drawing thread: it draws for a group while the edges of the other group are prefetched.
struct Lane {
    Group group, fetched;
    std::array<DrawnList, kDrawLanes> waiting;  // lists of `group` without draws yet
    size_t num_waiting = 0;
    LaneDrawer drawer;
    size_t fresh = 0;
    i64 lists = 0, hits = 0;
};

// Start and length of a destination's neighbour list, kept so that indptr is read once.
struct List {
    u64 start, degree;
};

template <class Key>
struct Workspace {
    explicit Workspace(int threads) : team(threads), lanes(static_cast<size_t>(threads)), fresh(lanes.size()) {}

    size_t bytes() const {
        size_t sum = table.bytes() + sorter.bytes() + nodes.bytes() + names.bytes() + lists.bytes();
        for (const auto& lane : lanes) sum += lane.group.offsets.bytes() + lane.fetched.offsets.bytes();
        for (const auto& list : fresh) sum += list.bytes();
        return sum;
    }

    Team team;
    NodeTable<Key> table;
    FreshSorter<Key> sorter;
    Scratch<i64> nodes;
    Scratch<i64> names;   // their original ids, where the graph is renumbered
    Scratch<List> lists;  // [num_dst]
    std::vector<Lane> lanes;
    std::vector<Scratch<Fresh<Key>>> fresh;  // by member: the nodes that it inserted first
    pid_t owner = getpid();
};

// `Plain`: neither a neighbour cache nor a renumbering, and no time spent on checks for them.
template <class Index, class Key, bool Plain>
class SamplerOf final : public NeighborSampler {
public:
    SamplerOf(const Topology<Index>& graph, u64 name_bound, SamplerOptions options)
        : graph_(graph), name_bound_(name_bound), options_(std::move(options)) {}

    Sample sample(u64 epoch, u64 batch, std::span<const i64> seeds) override {
        auto workspace = take();
        Sample sample = options_.threads > 1 ? run<true>(*workspace, epoch, batch, seeds)
                                             : run<false>(*workspace, epoch, batch, seeds);
        const std::lock_guard lock(mutex_);
        idle_.push_back(std::move(workspace));
        return sample;
    }

    size_t scratch_bytes() override {
        const std::lock_guard lock(mutex_);
        size_t sum = 0;
        for (const auto& workspace : idle_) sum += workspace->bytes();
        return sum;
    }

private:
    using Space = Workspace<Key>;

    u64 num_nodes() const noexcept { return graph_.num_nodes(); }

    bool renumbered() const noexcept { return !Plain && graph_.renumbered(); }

    const Index* entry(u64 offset) const noexcept {
        if constexpr (Plain) return graph_.indices.data() + offset;
        return ((offset & kCached) != 0 ? graph_.lists.data() : graph_.indices.data()) + (offset & ~kCached);
    }

    std::unique_ptr<Space> take() {
        const std::lock_guard lock(mutex_);
        while (!idle_.empty()) {
            auto workspace = std::move(idle_.back());
            idle_.pop_back();
            if (workspace->owner == getpid()) return workspace;
            // A forked child has the memory of the parent's team but not its threads: it can neither use nor end them.
            static_cast<void>(workspace.release());
        }
        return std::make_unique<Space>(options_.threads);
    }

    template <bool Shared>
    Sample run(Space& space, u64 epoch, u64 batch, std::span<const i64> seeds) {
        Sample sample;
        size_t count = begin(space, seeds);
        for (size_t hop = 0; hop < options_.fanout.size(); ++hop) {
            SampledHop result;
            result.num_dst = static_cast<i64>(count);
            count_edges(space, result, count, options_.fanout[hop]);
            const auto edges = static_cast<size_t>(result.indptr[count]);
            make_room<Shared>(space, count, edges);
            result.indices = Buffer<i32>(edges);
            const DrawName name{options_.seed, epoch, batch, static_cast<u32>(hop)};
            draw<Shared>(space, result, count, name, options_.fanout[hop]);
            count = place(space, count, result);
            result.num_src = static_cast<i64>(count);
            sample.edge_reads += result.indptr[static_cast<size_t>(result.num_dst)];
            for (auto& lane : space.lanes) {
                sample.list_reads += std::exchange(lane.lists, 0);
                sample.list_hits += std::exchange(lane.hits, 0);
            }
            sample.hops.push_back(std::move(result));
        }
        sample.nodes = copied(space, renumbered() ? space.names : space.nodes, count);
        if (renumbered()) sample.local = copied(space, space.nodes, count);
        return sample;
    }

    Buffer<i64> copied(Space& space, Scratch<i64>& ids, size_t count) {
        Buffer<i64> result(count);
        space.team.loop(count, 4 * kParallelItems, [&](size_t first, size_t last, int) {
            std::copy(ids.data() + first, ids.data() + last, result.data.get() + first);
        });
        return result;
    }

    // The seed nodes become the first destinations.
    size_t begin(Space& space, std::span<const i64> seeds) {
        space.table.reset(seeds.size());
        space.table.clear(0, space.table.slots());
        space.nodes.reserve(seeds.size());
        if (renumbered()) space.names.reserve(seeds.size());
        for (size_t i = 0; i < seeds.size(); ++i) {
            const i64 node = seeds[i];
            bool fresh = false;
            const auto key = static_cast<Key>(checked_seed(node, num_nodes()));
            const u32 slot = space.table.template insert<false>(key, fresh);
            if (!fresh) refuse_repeated_seed(node);
            space.table.value(slot) = static_cast<u32>(i);
            space.nodes[i] = node;
            if (renumbered()) space.names[i] = graph_.names[static_cast<size_t>(node)];
        }
        return seeds.size();
    }

    size_t chunk_of(const Space& space, size_t count) const noexcept {
        return std::clamp<size_t>(count / (8 * space.lanes.size()), 16, 1024);
    }

    // Finds every destination's list and the number of its kept edges, whose running sum becomes indptr.
    void count_edges(Space& space, SampledHop& result, size_t count, i64 fanout) {
        space.lists.reserve(count);
        result.indptr = Buffer<i64>(count + 1);
        i64* counts = result.indptr.data.get() + 1;
        const i64* nodes = space.nodes.data();
        space.team.loop(count, chunk_of(space, count), [&](size_t first, size_t last, size_t member) {
            i64 lists = 0, hits = 0;
            for (size_t i = first; i < last; ++i) {
                if (i + kAhead < last) {
                    const auto ahead = static_cast<size_t>(nodes[i + kAhead]);
                    __builtin_prefetch(&graph_.indptr[ahead]);
                    if (!Plain && !graph_.address.empty()) __builtin_prefetch(&graph_.address[ahead]);
                }
                const auto node = static_cast<size_t>(nodes[i]);
                const i64 start = graph_.indptr[node], end = graph_.indptr[node + 1];
                if (start < 0 || end < start || static_cast<u64>(end) > graph_.indices.size())
                    refuse_list(node, start, end, graph_.indices.size());
                const auto degree = static_cast<u64>(end - start);
                space.lists[i] = {static_cast<u64>(start), degree};
                counts[i] = static_cast<i64>(PositionDrawer::count(degree, fanout, options_.replace));
                lists += counts[i] > 0;
                if (!Plain && !graph_.address.empty() && graph_.address[node] >= 0) {
                    const auto cached = static_cast<u64>(graph_.address[node]);
                    if (cached + degree > graph_.lists.size())
                        refuse<std::out_of_range>("the cached list of node ", node, " is [", cached, ", ",
                                                  cached + degree, ") of ", graph_.lists.size(), " cached edges");
                    space.lists[i].start = cached | kCached;
                    hits += counts[i] > 0;
                }
            }
            space.lanes[member].lists += lists;
            space.lanes[member].hits += hits;
        });
        result.indptr[0] = 0;
        for (size_t i = 0; i < count; ++i) counts[i] += counts[i - 1];
    }

    // Grows the table to hold every node that this hop can reach, and fills it with the nodes so far.
    template <bool Shared>
    void make_room(Space& space, size_t count, size_t edges) {
        const u64 bound = std::min<u64>(num_nodes(), count + edges);
        if (bound >= u64{1} << 31)
            refuse<std::invalid_argument>("one hop has ", edges, " edges, more than 32-bit positions reach");
        if (space.table.fits(bound)) return;
        space.table.reset(bound);
        const size_t slots = space.table.slots();
        space.team.loop(slots, std::max<size_t>(slots / space.lanes.size(), kParallelItems),
                        [&](size_t first, size_t last, int) { space.table.clear(first, last); });
        space.team.loop(count, kParallelItems, [&](size_t first, size_t last, int) {
            for (size_t i = first; i < last; ++i) {
                if (i + kAhead < last) space.table.prefetch(static_cast<Key>(space.nodes[i + kAhead]));
                bool fresh = false;
                const u32 slot = space.table.template insert<Shared>(static_cast<Key>(space.nodes[i]), fresh);
                space.table.value(slot) = static_cast<u32>(i);
            }
        });
    }

    // Draws every destination's edges; `indices` of the result holds the table slots of their sources.
    template <bool Shared>
    void draw(Space& space, SampledHop& result, size_t count, const DrawName& name, i64 fanout) {
        for (auto& lane : space.lanes) lane.fresh = lane.num_waiting = lane.group.edges = lane.fetched.edges = 0;
        const i64* indptr = result.indptr.data.get();
        auto* slots = reinterpret_cast<u32*>(result.indices.data.get());
        space.team.loop(count, chunk_of(space, count), [&](size_t first, size_t last, size_t member) {
            Lane& lane = space.lanes[member];
            const auto turn = [&] {
                draw_waiting(lane, name, static_cast<size_t>(fanout));
                gather<Shared>(space, member);
                std::swap(lane.group, lane.fetched);
                lane.group.edges = 0;
                lane.group.out = lane.fetched.out + lane.fetched.edges;
                lane.group.offsets.reserve(kGroupEdges);
            };
            lane.group.out = slots + indptr[first];
            lane.group.offsets.reserve(kGroupEdges);
            for (size_t i = first; i < last; ++i) {
                const auto kept = static_cast<size_t>(indptr[i + 1] - indptr[i]);
                const auto [start, degree] = space.lists[i];
                // No edge: an empty list, or a fan-out of 0.
                if (kept == 0) continue;
                // The whole list: its positions are consecutive, and nothing is drawn.
                if (fanout < 0 || (kept == degree && !options_.replace)) {
                    __builtin_prefetch(entry(start));
                    __builtin_prefetch(entry(start + kept - 1));
                    for (size_t k = 0; k < kept; ++k) {
                        if (lane.group.edges == kGroupEdges) turn();
                        lane.group.offsets[lane.group.edges++] = start + k;
                    }
                    continue;
                }
                // A part of the list: it waits for its draws beside the other lists of the group.
                const bool full = lane.group.edges > 0 && lane.group.edges + kept > kGroupEdges;
                if (full || lane.num_waiting == kDrawLanes) turn();
                lane.group.offsets.reserve(kept);
                const auto node = static_cast<u64>(renumbered() ? space.names[i] : space.nodes[i]);
                lane.waiting[lane.num_waiting++] = {node, start, degree, lane.group.edges};
                lane.group.edges += kept;
            }
            turn();
            turn();
        });
    }

    // Draws for the waiting destinations and prefetches their edges.
    void draw_waiting(Lane& lane, const DrawName& name, size_t count) {
        const size_t waiting = std::exchange(lane.num_waiting, 0);
        if (waiting == 0) return;
        lane.drawer.draw({lane.waiting.data(), waiting}, name, count, options_.replace, lane.group.offsets.data());
        for (size_t l = 0; l < waiting; ++l) {
            u64* offsets = lane.group.offsets.data() + lane.waiting[l].at;
            for (size_t k = 0; k < count; ++k) {
                offsets[k] += lane.waiting[l].start;
                __builtin_prefetch(entry(offsets[k]));
            }
        }
    }

    // Looks up the sources of the fetched group and inserts the new ones.
    template <bool Shared>
    void gather(Space& space, size_t member) {
        Lane& lane = space.lanes[member];
        auto& list = space.fresh[member];
        const size_t count = std::exchange(lane.fetched.edges, 0);
        list.reserve(lane.fresh + count + 1, lane.fresh);
        u64* ids = lane.fetched.offsets.data();
        u32* slots = lane.fetched.out;
        for (size_t k = 0; k < count; ++k) {
            const Index source = *entry(ids[k]);
            const auto id = static_cast<u64>(source);
            if (id >= num_nodes()) refuse_source(ids[k] & ~kCached, source, num_nodes());
            ids[k] = id;
            space.table.prefetch(static_cast<Key>(id));
        }
        Fresh<Key>* end = list.data() + lane.fresh;
        for (size_t k = 0; k < count; ++k) {
            bool fresh = false;
            const auto id = static_cast<Key>(ids[k]);
            slots[k] = space.table.template insert<Shared>(id, fresh);
            *end = {id, slots[k]};
            end += fresh;
        }
        lane.fresh = static_cast<size_t>(end - list.data());
    }

    // Sets the positions of the new nodes by ascending id, then the positions of the edges. Returns the number of nodes.
    size_t place(Space& space, size_t count, SampledHop& result) {
        std::vector<size_t> counts;
        size_t fresh = 0;
        for (const auto& lane : space.lanes) {
            counts.push_back(lane.fresh);
            fresh += lane.fresh;
        }
        if (renumbered()) rename(space, counts);
        const u64 ids = renumbered() ? name_bound_ : num_nodes();
        const Fresh<Key>* sorted = space.sorter.sort(space.team, space.fresh, counts, ids);
        space.nodes.reserve(count + fresh, count);
        if (renumbered()) space.names.reserve(count + fresh, count);
        space.team.loop(fresh, kParallelItems, [&](size_t first, size_t last, int) {
            for (size_t i = first; i < last; ++i) {
                space.nodes[count + i] = static_cast<i64>(sorted[i].id);
                if (renumbered()) {
                    space.names[count + i] = static_cast<i64>(sorted[i].id);
                    space.nodes[count + i] = static_cast<i64>(space.table.key(sorted[i].slot));
                }
                space.table.value(sorted[i].slot) = static_cast<u32>(count + i);
            }
        });
        i32* edges = result.indices.data.get();
        const u32* values = space.table.values();
        const size_t num_edges = result.indices.size;
        space.team.loop(num_edges, 4 * kParallelItems, [&](size_t first, size_t last, int) {
            for (size_t i = first; i < last; ++i) edges[i] = static_cast<i32>(values[static_cast<u32>(edges[i])]);
        });
        return count + fresh;
    }

    // Replaces the new nodes' ids by their original ids; the table's slots keep the local ids.
    void rename(Space& space, const std::vector<size_t>& counts) {
        space.team.share(counts.size(), [&](size_t member) {
            Fresh<Key>* list = space.fresh[member].data();
            for (size_t i = 0; i < counts[member]; ++i) {
                if (i + kAhead < counts[member]) __builtin_prefetch(&graph_.names[list[i + kAhead].id]);
                list[i].id = static_cast<Key>(graph_.names[list[i].id]);
            }
        });
    }

    Topology<Index> graph_;
    u64 name_bound_;
    SamplerOptions options_;
    std::mutex mutex_;
    std::vector<std::unique_ptr<Space>> idle_;
};

}  // namespace

template <class Index>
std::unique_ptr<NeighborSampler> make_neighbor_sampler(const Topology<Index>& graph, SamplerOptions options) {
    const u64 bound = graph.name_bound();
    // The largest 32-bit id marks an empty slot of the table.
    const bool narrow = bound < 0xFFFFFFFFU && !options.wide_keys;
    const auto make = [&]<class Key, bool Plain>() -> std::unique_ptr<NeighborSampler> {
        return std::make_unique<SamplerOf<Index, Key, Plain>>(graph, bound, std::move(options));
    };
    const bool plain = graph.address.empty() && graph.names.empty();
    // Four cases: 32-bit or 64-bit keys, with or without a neighbour cache or renumbering.
    if (narrow && plain) return make.template operator()<u32, true>();
    if (plain) return make.template operator()<u64, true>();
    if (narrow) return make.template operator()<u32, false>();
    return make.template operator()<u64, false>();
}

template std::unique_ptr<NeighborSampler> make_neighbor_sampler(const Topology<i32>&, SamplerOptions);
template std::unique_ptr<NeighborSampler> make_neighbor_sampler(const Topology<i64>&, SamplerOptions);

}  // namespace outcore
