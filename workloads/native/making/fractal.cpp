// Randomised fractal expansion of a base graph B (Belletti et al., "Scalable Realistic Recommendation Datasets through
// Fractal Expansions", 2019, section 4): block (i, j) of the n x n blocks is B with fresh random row and column
// permutations, each edge kept with probability keep[i, j]. Any range of columns can be produced alone: find the base
// column by the inverse permutation, draw each of its edges, relabel the sources of the kept edges, sort.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <vector>

#include "base/arrays.hpp"
#include "base/philox.hpp"
#include "base/team.hpp"
#include "making/base_graph.hpp"
#include "making/permutation.hpp"

namespace outcore {
namespace {

constexpr i64 kEdgeGroup = 4 * kLanes;  // draws of one vector call

// Sets draws[k] for k in [0, kEdgeGroup) to the draw of edge 4 * counter + k of the base graph: edge e draws word e % 4
// at counter e / 4 of its block.
OUTCORE_CLONES void draw_group(u64 seed, u64 counter, u32 block, u32* draws) {
    Lanes<kLanes> lanes;
    set_counters(lanes, counter, block, Purpose::kFractal);
    philox_lanes(lanes, seed);
    OUTCORE_LANES
    for (int l = 0; l < kLanes; ++l) {
        draws[4 * l] = lanes.word0[l];
        draws[4 * l + 1] = lanes.word1[l];
        draws[4 * l + 2] = lanes.word2[l];
        draws[4 * l + 3] = lanes.word3[l];
    }
}

// Counts the draws below `bound` among edges [begin, end), begin a multiple of 4.
OUTCORE_CLONES i64 count_below(u64 seed, u32 block, u32 bound, i64 begin, i64 end) {
    i64 kept = 0;
    i64 edge = begin;
    for (; edge + kEdgeGroup <= end; edge += kEdgeGroup) {
        Lanes<kLanes> lanes;
        set_counters(lanes, static_cast<u64>(edge) / 4, block, Purpose::kFractal);
        philox_lanes(lanes, seed);
        u32 group = 0;
        OUTCORE_LANES
        for (int l = 0; l < kLanes; ++l) {
            group += (lanes.word0[l] < bound ? 1U : 0U) + (lanes.word1[l] < bound ? 1U : 0U) +
                     (lanes.word2[l] < bound ? 1U : 0U) + (lanes.word3[l] < bound ? 1U : 0U);
        }
        kept += group;
    }
    if (edge < end) {
        u32 draws[kEdgeGroup];
        draw_group(seed, static_cast<u64>(edge) / 4, block, draws);
        for (i64 k = 0; k < end - edge; ++k) kept += draws[k] < bound ? 1 : 0;
    }
    return kept;
}

OUTCORE_CLONES void rename_all(const Permutation& permutation, u32* ids, size_t count) {
    size_t k = 0;
    for (; k + kLanes <= count; k += kLanes) permutation.walk_lanes<false, kLanes>(ids + k);
    if (k < count) {
        u32 rest[kLanes] = {};
        std::copy(ids + k, ids + count, rest);
        permutation.walk_lanes<false, kLanes>(rest);
        std::copy(rest, rest + (count - k), ids + k);
    }
}

OUTCORE_CLONES void find_lanes(const Permutation& permutation, u32* ids) { permutation.walk_lanes<true, kLanes>(ids); }

// For one caller at a time: finished columns are kept in its working memory until `take`.
class Fractal {
public:
    // keep [n * n]: row i is the block of the target (the column of the CSC matrix), j that of the source.
    // The base graph's arrays must outlive this object.
    Fractal(const BaseGraph& base, std::span<const double> keep, u64 seed)
        : base_indptr_(base.indptr),
          base_indices_(base.indices),
          seed_(seed),
          base_nodes_(base.num_nodes()),
          copies_(std::llround(std::sqrt(static_cast<double>(keep.size())))) {
        if (base_nodes_ < 1 || copies_ < 1 || copies_ * copies_ != static_cast<i64>(keep.size()) || copies_ > 0xFFFF)
            throw std::invalid_argument("keep must be a square matrix, the base graph not empty");
        bound_.reserve(keep.size());
        rows_.reserve(keep.size());
        columns_.reserve(keep.size());
        for (u32 block = 0; block < keep.size(); ++block) {
            bound_.push_back(static_cast<u32>(std::clamp(keep[block], 0.0, 1.0) * 4294967295.0));
            rows_.emplace_back(base_nodes_, seed, block, 0U);
            columns_.emplace_back(base_nodes_, seed, block, 1U);
        }
    }

    i64 num_nodes() const noexcept { return copies_ * base_nodes_; }

    // Counts the edges of the whole result from the draws alone: permutations do not change the number kept.
    i64 count_edges(int threads) const {
        std::atomic<i64> total{0};
        for (u32 block = 0; block < bound_.size(); ++block)
            parallel(static_cast<i64>(base_indices_.size()), 1 << 20, threads,
                     [&](i64 begin, i64 end, int) { total += count_below(seed_, block, bound_[block], begin, end); });
        return total;
    }

    // Makes the lists of columns [first, first + degrees.size()), each ascending, in the working memory; returns the
    // sum of their lengths. `take` copies them out, one list after the other.
    template <typename Index>
    i64 make(i64 first, std::span<i64> degrees, int threads) {
        const auto count = static_cast<i64>(degrees.size());
        if (first < 0 || first + count > num_nodes()) throw std::out_of_range("columns outside the graph");
        constexpr i64 kPiece = 32 * kColumns;
        auto& arenas = arenas_of<Index>();
        const auto lanes = static_cast<size_t>(std::max(threads, 1));
        if (arenas.size() < lanes) arenas.resize(lanes);
        for (std::vector<Index>& arena : arenas) arena.clear();
        std::vector<Scratch> scratch(arenas.size());
        pieces_.assign(static_cast<size_t>((count + kPiece - 1) / kPiece), {});
        parallel(count, kPiece, threads, [&](i64 begin, i64 end, int thread) {
            std::vector<Index>& arena = arenas[thread];
            const size_t before = arena.size();
            for (i64 c = begin; c < end;) {
                const i64 left_in_copy = base_nodes_ - (first + c) % base_nodes_;
                const auto together = static_cast<int>(std::min({i64{kColumns}, end - c, left_in_copy}));
                append_columns(first + c, together, scratch[thread], degrees.data() + c, arena);
                c += together;
            }
            pieces_[begin / kPiece] = {static_cast<size_t>(thread), before, arena.size()};
        });
        size_t total = 0;
        for (Piece& piece : pieces_) {
            piece.place = total;
            total += piece.end - piece.begin;
        }
        return static_cast<i64>(total);
    }

    template <typename Index>
    void take(std::span<Index> out, int threads) {
        const auto& arenas = arenas_of<Index>();
        parallel(static_cast<i64>(pieces_.size()), 8, threads, [&](size_t begin, size_t end, int) {
            for (size_t k = begin; k < end; ++k) {
                const Piece& piece = pieces_[k];
                if (piece.place + (piece.end - piece.begin) > out.size()) throw std::out_of_range("out is too short");
                if (piece.thread >= arenas.size() || piece.end > arenas[piece.thread].size())
                    throw std::invalid_argument("these columns were made with ids of another width");
                const Index* from = arenas[piece.thread].data();
                std::copy(from + piece.begin, from + piece.end, out.data() + piece.place);
            }
        });
    }

private:
    static constexpr int kColumns = 16;  // columns made together: one vector of ids to relabel

    struct Scratch {
        std::vector<u32> kept;     // sources of one group of columns, block after block
        std::vector<size_t> ends;  // [n * kColumns]: end in `kept` of each column's part of each block
    };
    struct Piece {
        size_t thread, begin, end;  // its edges are arenas[thread][begin, end)
        size_t place = 0;           // position of the first among the call's edges
    };

    template <typename Index>
    std::vector<std::vector<Index>>& arenas_of() noexcept {
        if constexpr (sizeof(Index) == 4) return narrow_;
        else return wide_;
    }

    template <typename Index>
    void append_columns(i64 first, int count, Scratch& scratch, i64* degrees, std::vector<Index>& out) const {
        const i64 i = first / base_nodes_, target = first % base_nodes_;
        scratch.kept.clear();
        scratch.ends.resize(copies_ * kColumns);
        for (i64 j = 0; j < copies_; ++j) {
            const auto block = static_cast<size_t>(i * copies_ + j);
            size_t* const ends = scratch.ends.data() + j * kColumns;
            u32 column[kColumns] = {};
            for (int c = 0; c < count; ++c) column[c] = static_cast<u32>(target + c);
            find_lanes(columns_[block], column);
            // The columns lie anywhere in the base graph: prefetch all of them before the first is needed.
            for (int c = 0; c < count; ++c) __builtin_prefetch(&base_indptr_[column[c]]);
            for (int c = 0; c < count; ++c) {
                const i32* const list = base_indices_.data() + base_indptr_[column[c]];
                __builtin_prefetch(list);
                __builtin_prefetch(list + 16);
            }
            const size_t start = scratch.kept.size();
            for (int c = 0; c < count; ++c) {
                append_kept(block, base_indptr_[column[c]], base_indptr_[size_t{column[c]} + 1], scratch.kept);
                ends[c] = scratch.kept.size();
            }
            u32* const kept = scratch.kept.data();
            rename_all(rows_[block], kept + start, scratch.kept.size() - start);
            for (int c = 0; c < count; ++c) std::sort(kept + (c > 0 ? ends[c - 1] : start), kept + ends[c]);
        }
        size_t at = out.size();
        out.resize(at + scratch.kept.size());
        for (int c = 0; c < count; ++c) {
            const size_t before = at;
            for (i64 j = 0; j < copies_; ++j) {
                const size_t* const ends = scratch.ends.data() + j * kColumns;
                // Column 0's part follows the last column's part of the previous block.
                size_t k = c > 0 ? ends[c - 1] : j > 0 ? (ends - kColumns)[count - 1] : 0;
                const Index offset = static_cast<Index>(j * base_nodes_);
                for (; k < ends[c]; ++k) out[at++] = static_cast<Index>(scratch.kept[k]) + offset;
            }
            degrees[c] = static_cast<i64>(at - before);
        }
    }

    void append_kept(size_t block, i64 begin, i64 end, std::vector<u32>& kept) const {
        const u32 bound = bound_[block];
        const size_t before = kept.size();
        kept.resize(before + static_cast<size_t>(end - begin));
        u32* out = kept.data() + before;
        u32 draws[kEdgeGroup];
        const Philox4x32 philox(seed_);
        for (i64 edge = begin; edge < end;) {
            const auto counter = static_cast<u64>(edge) / 4;
            const auto group = static_cast<i64>(4 * counter);
            i64 drawn = 4;
            if (end - group > 2 * drawn) {  // one vector call is cheaper than three others
                draw_group(seed_, counter, static_cast<u32>(block), draws);
                drawn = kEdgeGroup;
            } else {
                const auto words = philox({static_cast<u32>(counter), static_cast<u32>(counter >> 32),
                                           static_cast<u32>(block), static_cast<u32>(Purpose::kFractal)});
                std::copy(words.begin(), words.end(), draws);
            }
            const i64 stop = std::min(end, group + drawn);
            for (; edge < stop; ++edge) {
                // Written whether kept or not: a branch on a random draw is mispredicted half the time.
                *out = static_cast<u32>(base_indices_[static_cast<size_t>(edge)]);
                out += draws[edge - group] < bound ? 1 : 0;
            }
        }
        kept.resize(static_cast<size_t>(out - kept.data()));
    }

    std::span<const i64> base_indptr_;
    std::span<const i32> base_indices_;
    u64 seed_;
    i64 base_nodes_, copies_;
    std::vector<u32> bound_;                   // [n * n]: an edge is kept when its draw is below
    std::vector<Permutation> rows_, columns_;  // [n * n]: of sources and of targets

    // Working memory, kept from call to call.
    std::vector<std::vector<i64>> wide_;  // [threads] ids of either width
    std::vector<std::vector<i32>> narrow_;
    std::vector<Piece> pieces_;
};

// Holds the base graph.
using FractalStream = Holding<Fractal, In<i64>, In<i32>>;

}  // namespace

void bind_fractal(nb::module_& m) {
    nb::class_<FractalStream>(m, "FractalStream")
        .def(
            "__init__",
            [](FractalStream* self, const In<i64>& base_indptr, const In<i32>& base_indices,
               std::span<const double> keep, u64 seed) {
                new (self) FractalStream({base_indptr, base_indices}, BaseGraph(base_indptr, base_indices), keep, seed);
            },
            "base_indptr"_a, "base_indices"_a, "keep"_a, "seed"_a)
        .def_prop_ro("num_nodes", &FractalStream::num_nodes)
        .def("count_edges", &FractalStream::count_edges, "threads"_a, released())
        .def("make32", &FractalStream::make<i32>, "first"_a, "degrees"_a, "threads"_a, released())
        .def("make64", &FractalStream::make<i64>, "first"_a, "degrees"_a, "threads"_a, released())
        .def("take", &FractalStream::take<i32>, "out"_a, "threads"_a, released())
        .def("take", &FractalStream::take<i64>, "out"_a, "threads"_a, released());
}

}  // namespace outcore
