// Streams a Kronecker product in CSC order; the inner loop adds one number to a run of base neighbours.
#include "making/kronecker.hpp"

#include <algorithm>
#include <stdexcept>

#include "base/simd.hpp"
#include "base/team.hpp"

namespace outcore {

Kronecker::Kronecker(std::span<const i64> base_indptr, std::span<const i32> base_indices,
                     std::span<const i64> seed_indptr, std::span<const i32> seed_indices, i64 num_nodes)
    : base_indptr_(base_indptr),
      base_indices_(base_indices),
      seed_indptr_(seed_indptr),
      seed_indices_(seed_indices),
      num_nodes_(num_nodes),
      base_nodes_(static_cast<i64>(base_indptr.size()) - 1),
      copies_(static_cast<i64>(seed_indptr.size()) - 1) {
    if (base_nodes_ < 1 || copies_ < 1 || num_nodes <= (copies_ - 1) * base_nodes_ ||
        num_nodes > copies_ * base_nodes_) {
        throw std::invalid_argument("num_nodes must lie in the last copy of the base graph");
    }
    const i64 last_nodes = num_nodes - (copies_ - 1) * base_nodes_;
    if (last_nodes < base_nodes_) {
        cut_indptr_.resize(static_cast<size_t>(base_nodes_) + 1);
        for (size_t u = 0; u < static_cast<size_t>(base_nodes_); ++u) {
            const auto first = base_indices.begin() + base_indptr[u];
            const auto last = base_indices.begin() + base_indptr[u + 1];
            cut_indptr_[u + 1] = cut_indptr_[u] + (std::lower_bound(first, last, last_nodes) - first);
        }
    }
    const auto copies = static_cast<size_t>(copies_);
    whole_.resize(copies);
    cut_.resize(copies);
    block_start_.resize(copies + 1);
    for (size_t i = 0; i < copies; ++i) {
        const i64 degree = seed_indptr[i + 1] - seed_indptr[i];
        const bool cut = !cut_indptr_.empty() && degree > 0 &&
                         seed_indices[static_cast<size_t>(seed_indptr[i + 1]) - 1] == copies_ - 1;
        cut_[i] = cut;
        whole_[i] = degree - (cut ? 1 : 0);
        const i64 columns = i + 1 == copies ? last_nodes : base_nodes_;
        block_start_[i + 1] = block_start_[i] + before(static_cast<i64>(i), columns);
    }
}

// Writes edges [start, end) to out; a friend, not a member, so that the cloned wrappers can inline it.
template <typename Index>
OUTCORE_INLINE void write_range(const Kronecker& self, i64 start, i64 end, Index* out) {
    constexpr i64 kWidth = 64 / sizeof(Index);
    Index* const stop = out + (end - start);
    // Runs are written in whole vectors, and the next run overwrites the excess. Excess is forbidden at the end of this
    // range, where another thread's begins, and at the end of the base graph's array.
    Index* const safe_out = stop - kWidth;
    const i32* const indices = self.base_indices_.data();
    const auto safe_in = static_cast<i64>(self.base_indices_.size()) - kWidth;
    const i64* const indptr = self.base_indptr_.data();

    i64 i = std::upper_bound(self.block_start_.begin(), self.block_start_.end(), start) - self.block_start_.begin() - 1;
    i64 low = 0, high = self.base_nodes_;  // the last column of block i that begins at or before start
    const i64 within = start - self.block_start_[static_cast<size_t>(i)];
    while (high - low > 1) {
        const i64 middle = (low + high) / 2;
        (self.before(i, middle) <= within ? low : high) = middle;
    }
    i64 u = low, skip = within - self.before(i, low);

    for (; out < stop; ++i, u = 0) {
        const bool last_copy = i + 1 == self.copies_;
        const i64 columns = last_copy ? self.num_nodes_ - i * self.base_nodes_ : self.base_nodes_;
        const i32* const copies = self.seed_indices_.data() + self.seed_indptr_[static_cast<size_t>(i)];
        const i64 whole = self.whole_[static_cast<size_t>(i)];
        const bool cut = self.cut_[static_cast<size_t>(i)] != 0;
        for (; u < columns && out < stop; ++u) {
            for (i64 s = 0; s < whole + (cut ? 1 : 0); ++s) {
                i64 from = indptr[u];
                i64 length =
                    s < whole ? indptr[u + 1] - from
                              : self.cut_indptr_[static_cast<size_t>(u) + 1] - self.cut_indptr_[static_cast<size_t>(u)];
                if (skip > 0) {  // only in the first column
                    const i64 skipped = std::min(skip, length);
                    skip -= skipped;
                    from += skipped;
                    length -= skipped;
                }
                const Index offset = static_cast<Index>(copies[s]) * static_cast<Index>(self.base_nodes_);
                const i32* in = indices + from;
                if (out + length <= safe_out && from + length <= safe_in) {
                    for (i64 k = 0; k < length; k += kWidth) {
                        for (i64 w = 0; w < kWidth; ++w) out[k + w] = static_cast<Index>(in[k + w]) + offset;
                    }
                } else {
                    length = std::min<i64>(length, stop - out);
                    for (i64 k = 0; k < length; ++k) out[k] = static_cast<Index>(in[k]) + offset;
                }
                out += length;
            }
        }
    }
}

namespace {

OUTCORE_CLONES void write_edges(const Kronecker& self, i64 start, i64 end, i32* out) {
    write_range(self, start, end, out);
}

OUTCORE_CLONES void write_edges(const Kronecker& self, i64 start, i64 end, i64* out) {
    write_range(self, start, end, out);
}

template <typename Index>
void all_edges(const Kronecker& self, i64 start, std::span<Index> out, int threads) {
    const auto count = static_cast<i64>(out.size());
    if (start < 0 || start + count > self.num_edges()) throw std::out_of_range("edges past the end of the product");
    constexpr i64 kPiece = 1 << 18;
    parallel(count, kPiece, threads,
             [&](i64 begin, i64 end, int) { write_edges(self, start + begin, start + end, out.data() + begin); });
}

}  // namespace

void Kronecker::edges(i64 start, std::span<i32> out, int threads) const { all_edges(*this, start, out, threads); }

void Kronecker::edges(i64 start, std::span<i64> out, int threads) const { all_edges(*this, start, out, threads); }

void Kronecker::indptr(i64 start, std::span<i64> out, int threads) const {
    const auto count = static_cast<i64>(out.size());
    if (start < 0 || start + count > num_nodes_ + 1) throw std::out_of_range("indptr past the end of the product");
    parallel(count, 1 << 18, threads, [&](i64 begin, i64 end, int) {
        i64 i = (start + begin) / base_nodes_, u = (start + begin) % base_nodes_;
        for (i64 k = begin; k < end; ++k) {
            out[static_cast<size_t>(k)] =
                i == copies_ ? num_edges() : block_start_[static_cast<size_t>(i)] + before(i, u);
            if (++u == base_nodes_) {
                u = 0;
                ++i;
            }
        }
    });
}

}  // namespace outcore
