// The Kronecker product of a seed graph S (K nodes) and a base graph B (NB nodes), as a list of edges in CSC order of
// which any range can be produced alone: the column of node (i, u) = i * NB + u holds j * NB + v for j in N_S(i) and v
// in N_B(u), ascending when both lists are. (Leskovec et al., "Kronecker Graphs", JMLR 2010, section 2.)
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/arrays.hpp"
#include "base/team.hpp"
#include "making/base_graph.hpp"

namespace outcore {
namespace {

class Kronecker {
public:
    // Base lists must ascend. Nodes from `num_nodes` on are cut off, with their edges; the cut lies in the last copy.
    // The graphs' arrays must outlive this object.
    Kronecker(const BaseGraph& base, const BaseGraph& seed, i64 num_nodes)
        : base_(base),
          seed_(seed),
          num_nodes_(num_nodes),
          base_nodes_(base.num_nodes()),
          copies_(seed.num_nodes()),
          whole_(seed.indptr.size()),
          cut_(seed.indptr.size()),
          block_start_(seed.indptr.size()) {
        if (base_nodes_ < 1 || copies_ < 1 || num_nodes <= (copies_ - 1) * base_nodes_ ||
            num_nodes > copies_ * base_nodes_)
            throw std::invalid_argument("num_nodes must lie in the last copy of the base graph");
        if (const i64 last_nodes = columns_of(copies_ - 1); last_nodes < base_nodes_) {
            cut_indptr_.resize(base.indptr.size());
            for (i64 u = 0; u < base_nodes_; ++u) {
                const auto first = base.indices.begin() + base.indptr[u],
                           last = base.indices.begin() + base.indptr[u + 1];
                cut_indptr_[u + 1] = cut_indptr_[u] + (std::lower_bound(first, last, last_nodes) - first);
            }
        }
        for (i64 i = 0; i < copies_; ++i) {
            const i64 degree = seed.indptr[i + 1] - seed.indptr[i];
            cut_[i] = !cut_indptr_.empty() && degree > 0 && seed.indices[seed.indptr[i + 1] - 1] == copies_ - 1;
            whole_[i] = degree - cut_[i];
            block_start_[i + 1] = block_start_[i] + before(i, columns_of(i));
        }
    }

    i64 num_nodes() const noexcept { return num_nodes_; }
    i64 num_edges() const noexcept { return block_start_.back(); }

    // Writes edges [start, start + out.size()) of the product's index array.
    template <typename Index>
    void edges(i64 start, std::span<Index> out, int threads) const {
        const auto count = static_cast<i64>(out.size());
        if (start < 0 || start + count > num_edges()) throw std::out_of_range("edges past the end of the product");
        parallel(count, 1 << 18, threads,
                 [&](i64 begin, i64 end, int) { write_edges(*this, start + begin, start + end, out.data() + begin); });
    }

    // Writes entries [start, start + out.size()) of the product's indptr.
    void indptr(i64 start, std::span<i64> out, int threads) const {
        const auto count = static_cast<i64>(out.size());
        if (start < 0 || start + count > num_nodes_ + 1) throw std::out_of_range("indptr past the end of the product");
        parallel(count, 1 << 18, threads, [&](i64 begin, i64 end, int) {
            i64 i = (start + begin) / base_nodes_, u = (start + begin) % base_nodes_;
            for (i64 k = begin; k < end; ++k) {
                out[k] = i == copies_ ? num_edges() : block_start_[i] + before(i, u);
                if (++u < base_nodes_) continue;
                u = 0;
                ++i;
            }
        });
    }

    // Writes edges [start, end) to out; the inner loop adds one number to a run of base neighbours.
    template <typename Index>
    OUTCORE_INLINE void write(i64 start, i64 end, Index* out) const {
        constexpr i64 kWidth = 64 / sizeof(Index);
        Index* const stop = out + (end - start);
        // Runs are written in whole vectors, and the next run overwrites the excess. Excess is forbidden at the end of
        // this range, where another thread's begins, and at the end of the base graph's array.
        Index* const safe_out = stop - kWidth;
        const i32* const indices = base_.indices.data();
        const auto safe_in = static_cast<i64>(base_.indices.size()) - kWidth;
        const i64* const indptr = base_.indptr.data();

        i64 i = std::upper_bound(block_start_.begin(), block_start_.end(), start) - block_start_.begin() - 1;
        i64 low = 0, high = base_nodes_;  // the last column of block i that begins at or before start
        const i64 within = start - block_start_[i];
        while (high - low > 1) {
            const i64 middle = (low + high) / 2;
            (before(i, middle) <= within ? low : high) = middle;
        }
        i64 u = low, skip = within - before(i, low);

        for (; out < stop; ++i, u = 0) {
            const i64 columns = columns_of(i);
            const i32* const copies = seed_.indices.data() + seed_.indptr[i];
            const i64 whole = whole_[i];
            for (; u < columns && out < stop; ++u) {
                for (i64 s = 0; s < whole + cut_[i]; ++s) {
                    i64 from = indptr[u];
                    i64 length = s < whole ? indptr[u + 1] - from : cut_indptr_[u + 1] - cut_indptr_[u];
                    if (skip > 0) {  // only in the first column
                        const i64 skipped = std::min(skip, length);
                        skip -= skipped;
                        from += skipped;
                        length -= skipped;
                    }
                    const Index offset = static_cast<Index>(copies[s]) * static_cast<Index>(base_nodes_);
                    const i32* in = indices + from;
                    if (out + length <= safe_out && from + length <= safe_in) {
                        for (i64 k = 0; k < length; k += kWidth)
                            for (i64 w = 0; w < kWidth; ++w) out[k + w] = static_cast<Index>(in[k + w]) + offset;
                    } else {
                        length = std::min<i64>(length, stop - out);
                        for (i64 k = 0; k < length; ++k) out[k] = static_cast<Index>(in[k]) + offset;
                    }
                    out += length;
                }
            }
        }
    }

private:
    i64 columns_of(i64 i) const noexcept { return i + 1 == copies_ ? num_nodes_ - i * base_nodes_ : base_nodes_; }

    // Counts the edges of block i before its column u.
    i64 before(i64 i, i64 u) const noexcept { return whole_[i] * base_.indptr[u] + (cut_[i] ? cut_indptr_[u] : 0); }

    BaseGraph base_, seed_;
    i64 num_nodes_, base_nodes_, copies_;
    std::vector<i64> cut_indptr_;   // [NB + 1]: edges from sources that exist in the last copy; empty if all do
    std::vector<i64> whole_;        // [K]: copies that block i takes whole lists from
    std::vector<u8> cut_;           // [K]: whether it also takes the shortened list of the last copy
    std::vector<i64> block_start_;  // [K + 1]: first edge of each block
};

OUTCORE_CLONES void write_edges(const Kronecker& self, i64 start, i64 end, i32* out) { self.write(start, end, out); }
OUTCORE_CLONES void write_edges(const Kronecker& self, i64 start, i64 end, i64* out) { self.write(start, end, out); }

// Holds the base and seed graphs.
using KroneckerStream = Holding<Kronecker, In<i64>, In<i32>, In<i64>, In<i32>>;

}  // namespace

void bind_kronecker(nb::module_& m) {
    nb::class_<KroneckerStream>(m, "KroneckerStream")
        .def(
            "__init__",
            [](KroneckerStream* self, const In<i64>& base_indptr, const In<i32>& base_indices,
               const In<i64>& seed_indptr, const In<i32>& seed_indices, i64 num_nodes) {
                const BaseGraph base(base_indptr, base_indices), seed(seed_indptr, seed_indices);
                new (self)
                    KroneckerStream({base_indptr, base_indices, seed_indptr, seed_indices}, base, seed, num_nodes);
            },
            "base_indptr"_a, "base_indices"_a, "seed_indptr"_a, "seed_indices"_a, "num_nodes"_a)
        .def_prop_ro("num_nodes", &KroneckerStream::num_nodes)
        .def_prop_ro("num_edges", &KroneckerStream::num_edges)
        .def("indptr", &KroneckerStream::indptr, "start"_a, "out"_a, "threads"_a, released())
        .def("edges", &KroneckerStream::edges<i32>, "start"_a, "out"_a, "threads"_a, released())
        .def("edges", &KroneckerStream::edges<i64>, "start"_a, "out"_a, "threads"_a, released());
}

}  // namespace outcore
