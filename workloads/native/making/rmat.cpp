// R-MAT edges (Chakrabarti, Zhan and Faloutsos, SDM 2004, section 3; parameters as Graph500 has them). Edge k is a pure
// function of the seed and k, so a CSC graph is built in passes over ranges of its columns without storing the edges.
#include <algorithm>
#include <atomic>
#include <bit>
#include <stdexcept>
#include <utility>

#include "base/arrays.hpp"
#include "base/philox.hpp"
#include "base/refuse.hpp"
#include "base/team.hpp"
#include "making/permutation.hpp"

namespace outcore {
namespace {

constexpr i64 kPiece = 1 << 16;  // edges a thread draws at a time; a multiple of kLanes

// Graph500: a = 0.57, b = c = 0.19, d = 0.05, as bounds of 16-bit draws. The first quadrant sets neither bit, the second
// the target's, the third the source's, the fourth both.
constexpr u32 kA = 37356, kAB = 49807, kABC = 62259;

// Share of edges moved into a community, besides those in one by chance: 0.6, as a bound of 32-bit draws.
constexpr u32 kCommunityShare = 2576980377U;

OUTCORE_CLONES void draw_lanes(u64 seed, u64 first, int scale, u32 attempt, u32* source, u32* target) {
    alignas(64) u32 from[kLanes] = {}, to[kLanes] = {};
    for (int level = 0; level < scale; level += 8) {
        Lanes<kLanes> lanes;
        set_counters(lanes, first, (attempt << 3) | static_cast<u32>(level >> 3), Purpose::kRmat);
        philox_lanes(lanes, seed);
        const u32* const words[4] = {lanes.word0.data(), lanes.word1.data(), lanes.word2.data(), lanes.word3.data()};
        const int levels = std::min(8, scale - level);
        for (int k = 0; k < levels; ++k) {
            const u32* const word = words[k >> 1];
            const int shift = (k & 1) * 16;
            OUTCORE_LANES
            for (int l = 0; l < kLanes; ++l) {
                const u32 draw = (word[l] >> shift) & 0xFFFFU;
                const u32 past_a = draw >= kA, past_ab = draw >= kAB, past_abc = draw >= kABC;
                from[l] = (from[l] << 1) | past_ab;
                to[l] = (to[l] << 1) | (past_a ^ past_ab ^ past_abc);
            }
        }
    }
    std::copy(from, from + kLanes, source);
    std::copy(to, to + kLanes, target);
}

// Draws one coin for each of edges [first, first + kLanes).
OUTCORE_CLONES void toss_lanes(u64 seed, u64 first, u32* coins) {
    Lanes<kLanes> lanes;
    set_counters(lanes, first, 0, Purpose::kCommunity);
    philox_lanes(lanes, seed);
    std::copy(lanes.word0.begin(), lanes.word0.end(), coins);
}

OUTCORE_CLONES void rename_lanes(const Permutation& permutation, u32* ids) {
    permutation.walk_lanes<false, kLanes>(ids);
}

class Rmat {
public:
    // Ids lie in [0, num_nodes), at most 2^32; an edge outside is drawn again. `permute` relabels the nodes, so that
    // ids do not depend on degrees. With `communities` > 0 a fixed share of the edges have their source moved to the
    // nearest id of the target's community, which changes only the id's lowest bits and so hardly its degree; 0 is
    // plain Graph500.
    Rmat(i64 num_nodes, i64 num_edges, u64 seed, bool permute, u32 communities)
        : num_nodes_(num_nodes),
          num_edges_(num_edges),
          seed_(seed),
          permute_(permute),
          communities_(communities),
          scale_(num_nodes > 1 ? std::bit_width(static_cast<u64>(num_nodes) - 1) : 0),
          permutation_(static_cast<u64>(num_nodes), seed, 0, static_cast<u32>(Purpose::kRmat)) {
        if (num_nodes < 1 || num_nodes > (i64{1} << 32) || num_edges < 0)
            throw std::invalid_argument("R-MAT takes 1 to 2^32 nodes");
    }

    // Writes the communities of nodes [first, first + out.size()).
    void labels(i64 first, std::span<i64> out) const {
        if (communities_ == 0) throw std::invalid_argument("plain R-MAT has no communities");
        if (first < 0 || first > num_nodes_ - static_cast<i64>(out.size()))
            throw std::out_of_range("nodes outside the graph");
        for (i64& label : out) {
            const auto id = static_cast<u64>(first++);
            label = static_cast<i64>((permute_ ? permutation_.inverse(id) : id) % communities_);
        }
    }

    // indptr[c + 1] += in-degree of c; indptr [N + 1] comes zeroed and is summed up on return.
    void count(std::span<i64> indptr, int threads) const {
        check_size(indptr);
        for_each_edge(threads, [&](u32, u32 target) {
            std::atomic_ref<i64>(indptr[size_t{target} + 1]).fetch_add(1, std::memory_order_relaxed);
        });
        for (size_t c = 1; c < indptr.size(); ++c) indptr[c] += indptr[c - 1];
    }

    // Writes the sorted lists of columns [first, last) to out [indptr[last] - indptr[first]]; `used` [last - first] is
    // zeroed scratch.
    template <typename Index>
    void fill(std::span<const i64> indptr, i64 first, i64 last, std::span<Index> out, std::span<u32> used,
              int threads) const {
        check_size(indptr);
        if (first < 0 || last > num_nodes_ || first > last) throw std::out_of_range("columns outside the graph");
        const i64 base = indptr[first];
        if (static_cast<i64>(out.size()) != indptr[last] - base || static_cast<i64>(used.size()) != last - first)
            throw std::invalid_argument("buffers do not fit the columns");
        for_each_edge(threads, [&](u32 source, u32 target) {
            const i64 column = target;
            if (column < first || column >= last) return;
            const u32 slot = std::atomic_ref<u32>(used[column - first]).fetch_add(1, std::memory_order_relaxed);
            const auto at = static_cast<size_t>(indptr[column] - base + slot);
            if (at >= out.size())
                refuse<std::invalid_argument>("indptr is of another graph: column ", column, " has more edges");
            out[at] = static_cast<Index>(source);
        });
        const auto columns = indptr.subspan(first, last - first + 1);
        if (!std::is_sorted(columns.begin(), columns.end())) throw std::invalid_argument("indptr decreases");
        // Threads reach a column in any order; sorted, its list is the same for every number of threads.
        parallel(last - first, 4096, threads, [&](i64 begin, i64 end, int) {
            for (i64 c = begin; c < end; ++c)
                std::sort(out.begin() + (columns[c] - base), out.begin() + (columns[c + 1] - base));
        });
    }

private:
    // Calls visit(source, target) for each edge, on `threads` threads.
    template <class Visit>
    void for_each_edge(int threads, const Visit& visit) const {
        parallel(num_edges_, kPiece, threads, [&](i64 begin, i64 end, int) {
            u32 source[kLanes], target[kLanes];
            for (i64 first = begin; first < end; first += kLanes) {
                draw(first, source, target);
                const auto lanes = std::min<i64>(kLanes, end - first);
                for (i64 l = 0; l < lanes; ++l) visit(source[l], target[l]);
            }
        });
    }

    // Draws the sources and targets of edges [first, first + kLanes).
    void draw(i64 first, u32* source, u32* target) const {
        draw_lanes(seed_, first, scale_, 0, source, target);
        // An edge outside the graph is drawn again, at its own number and the next attempt.
        bool again = true;
        for (u32 attempt = 1; again; ++attempt) {
            u32 from[kLanes], to[kLanes];
            again = false;
            for (int l = 0; l < kLanes; ++l) {
                if (source[l] < num_nodes_ && target[l] < num_nodes_) continue;
                if (!std::exchange(again, true)) draw_lanes(seed_, first, scale_, attempt, from, to);
                source[l] = from[l];
                target[l] = to[l];
            }
        }
        if (communities_ > 0) into_communities(first, source, target);
        if (permute_) {
            rename_lanes(permutation_, source);
            rename_lanes(permutation_, target);
        }
    }

    void into_communities(i64 first, u32* source, const u32* target) const {
        u32 coins[kLanes];
        toss_lanes(seed_, first, coins);
        for (int l = 0; l < kLanes; ++l) {
            if (coins[l] >= kCommunityShare) continue;
            i64 moved = i64{source[l]} - source[l] % communities_ + target[l] % communities_;
            if (moved >= num_nodes_) moved -= communities_;
            if (moved >= 0) source[l] = static_cast<u32>(moved);
        }
    }

    void check_size(std::span<const i64> indptr) const {
        if (indptr.size() != static_cast<size_t>(num_nodes_) + 1)
            refuse<std::invalid_argument>("indptr has ", indptr.size(), " entries for ", num_nodes_, " nodes");
    }

    i64 num_nodes_, num_edges_;
    u64 seed_;
    bool permute_;
    u32 communities_;
    int scale_;
    Permutation permutation_;
};

}  // namespace

void bind_rmat(nb::module_& m) {
    nb::class_<Rmat>(m, "Rmat")
        .def(nb::init<i64, i64, u64, bool, u32>(), "num_nodes"_a, "num_edges"_a, "seed"_a, "permute"_a, "communities"_a)
        .def("count", &Rmat::count, "indptr"_a, "threads"_a, released())
        .def("labels", &Rmat::labels, "first"_a, "out"_a, released())
        .def("fill", &Rmat::fill<i32>, "indptr"_a, "first"_a, "last"_a, "out"_a, "used"_a, "threads"_a, released())
        .def("fill", &Rmat::fill<i64>, "indptr"_a, "first"_a, "last"_a, "out"_a, "used"_a, "threads"_a, released());
    m.def(
        "permute",
        [](u64 n, u64 seed, u32 name0, u32 name1, bool inverse, std::span<i64> ids) {
            const Permutation permutation(n, seed, name0, name1);
            for (i64& id : ids) {
                if (static_cast<u64>(id) >= n) throw std::out_of_range("an id is outside [0, n)");
                id = static_cast<i64>(inverse ? permutation.inverse(id) : permutation.forward(id));
            }
        },
        "n"_a, "seed"_a, "name0"_a, "name1"_a, "inverse"_a, "ids"_a, released());
}

}  // namespace outcore
