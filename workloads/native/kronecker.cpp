// Streams a Kronecker product in CSC order; the inner loop adds one number to a run of base neighbours.
#include "kronecker.hpp"

#include <algorithm>
#include <stdexcept>

#include "parallel.hpp"
#include "simd.hpp"

namespace outcore {

Kronecker::Kronecker(std::span<const std::int64_t> base_indptr, std::span<const std::int32_t> base_indices,
                     std::span<const std::int64_t> seed_indptr, std::span<const std::int32_t> seed_indices,
                     std::int64_t num_nodes)
    : base_indptr_(base_indptr),
      base_indices_(base_indices),
      seed_indptr_(seed_indptr),
      seed_indices_(seed_indices),
      num_nodes_(num_nodes),
      base_nodes_(static_cast<std::int64_t>(base_indptr.size()) - 1),
      copies_(static_cast<std::int64_t>(seed_indptr.size()) - 1) {
    if (base_nodes_ < 1 || copies_ < 1 || num_nodes <= (copies_ - 1) * base_nodes_ ||
        num_nodes > copies_ * base_nodes_) {
        throw std::invalid_argument("num_nodes must lie in the last copy of the base graph");
    }
    const std::int64_t last_nodes = num_nodes - (copies_ - 1) * base_nodes_;
    if (last_nodes < base_nodes_) {
        cut_indptr_.resize(static_cast<std::size_t>(base_nodes_) + 1);
        for (std::size_t u = 0; u < static_cast<std::size_t>(base_nodes_); ++u) {
            const auto first = base_indices.begin() + base_indptr[u];
            const auto last = base_indices.begin() + base_indptr[u + 1];
            cut_indptr_[u + 1] = cut_indptr_[u] + (std::lower_bound(first, last, last_nodes) - first);
        }
    }
    const auto copies = static_cast<std::size_t>(copies_);
    whole_.resize(copies);
    cut_.resize(copies);
    block_start_.resize(copies + 1);
    for (std::size_t i = 0; i < copies; ++i) {
        const std::int64_t degree = seed_indptr[i + 1] - seed_indptr[i];
        const bool cut = !cut_indptr_.empty() && degree > 0 &&
                         seed_indices[static_cast<std::size_t>(seed_indptr[i + 1]) - 1] == copies_ - 1;
        cut_[i] = cut;
        whole_[i] = degree - (cut ? 1 : 0);
        const std::int64_t columns = i + 1 == copies ? last_nodes : base_nodes_;
        block_start_[i + 1] = block_start_[i] + before(static_cast<std::int64_t>(i), columns);
    }
}

// Writes edges [start, end) to out; a friend, not a member, so that the cloned wrappers can inline it.
template <typename Index>
OUTCORE_INLINE void write_range(const Kronecker& self, std::int64_t start, std::int64_t end, Index* out) {
    constexpr std::int64_t kWidth = 64 / sizeof(Index);
    Index* const stop = out + (end - start);
    // Runs are written in whole vectors, and the next run overwrites the excess. Excess is forbidden at the end of this
    // range, where another thread's begins, and at the end of the base graph's array.
    Index* const safe_out = stop - kWidth;
    const std::int32_t* const indices = self.base_indices_.data();
    const auto safe_in = static_cast<std::int64_t>(self.base_indices_.size()) - kWidth;
    const std::int64_t* const indptr = self.base_indptr_.data();

    std::int64_t i = std::upper_bound(self.block_start_.begin(), self.block_start_.end(), start) -
                     self.block_start_.begin() - 1;
    std::int64_t low = 0, high = self.base_nodes_;  // the last column of block i that begins at or before start
    const std::int64_t within = start - self.block_start_[static_cast<std::size_t>(i)];
    while (high - low > 1) {
        const std::int64_t middle = (low + high) / 2;
        (self.before(i, middle) <= within ? low : high) = middle;
    }
    std::int64_t u = low, skip = within - self.before(i, low);

    for (; out < stop; ++i, u = 0) {
        const bool last_copy = i + 1 == self.copies_;
        const std::int64_t columns = last_copy ? self.num_nodes_ - i * self.base_nodes_ : self.base_nodes_;
        const std::int32_t* const copies = self.seed_indices_.data() + self.seed_indptr_[static_cast<std::size_t>(i)];
        const std::int64_t whole = self.whole_[static_cast<std::size_t>(i)];
        const bool cut = self.cut_[static_cast<std::size_t>(i)] != 0;
        for (; u < columns && out < stop; ++u) {
            for (std::int64_t s = 0; s < whole + (cut ? 1 : 0); ++s) {
                std::int64_t from = indptr[u];
                std::int64_t length = s < whole ? indptr[u + 1] - from
                                                : self.cut_indptr_[static_cast<std::size_t>(u) + 1] -
                                                      self.cut_indptr_[static_cast<std::size_t>(u)];
                if (skip > 0) {  // only in the first column
                    const std::int64_t skipped = std::min(skip, length);
                    skip -= skipped;
                    from += skipped;
                    length -= skipped;
                }
                const Index offset = static_cast<Index>(copies[s]) * static_cast<Index>(self.base_nodes_);
                const std::int32_t* in = indices + from;
                if (out + length <= safe_out && from + length <= safe_in) {
                    for (std::int64_t k = 0; k < length; k += kWidth) {
                        for (std::int64_t w = 0; w < kWidth; ++w) out[k + w] = static_cast<Index>(in[k + w]) + offset;
                    }
                } else {
                    length = std::min<std::int64_t>(length, stop - out);
                    for (std::int64_t k = 0; k < length; ++k) out[k] = static_cast<Index>(in[k]) + offset;
                }
                out += length;
            }
        }
    }
}

namespace {

OUTCORE_CLONES void write_edges(const Kronecker& self, std::int64_t start, std::int64_t end, std::int32_t* out) {
    write_range(self, start, end, out);
}

OUTCORE_CLONES void write_edges(const Kronecker& self, std::int64_t start, std::int64_t end, std::int64_t* out) {
    write_range(self, start, end, out);
}

template <typename Index>
void all_edges(const Kronecker& self, std::int64_t start, std::span<Index> out, int threads) {
    const auto count = static_cast<std::int64_t>(out.size());
    if (start < 0 || start + count > self.num_edges()) throw std::out_of_range("edges past the end of the product");
    constexpr std::int64_t kPiece = 1 << 18;
    parallel_for(count, kPiece, threads, [&](std::int64_t begin, std::int64_t end, int) {
        write_edges(self, start + begin, start + end, out.data() + begin);
    });
}

}  // namespace

void Kronecker::edges(std::int64_t start, std::span<std::int32_t> out, int threads) const {
    all_edges(*this, start, out, threads);
}

void Kronecker::edges(std::int64_t start, std::span<std::int64_t> out, int threads) const {
    all_edges(*this, start, out, threads);
}

void Kronecker::indptr(std::int64_t start, std::span<std::int64_t> out, int threads) const {
    const auto count = static_cast<std::int64_t>(out.size());
    if (start < 0 || start + count > num_nodes_ + 1) throw std::out_of_range("indptr past the end of the product");
    parallel_for(count, 1 << 18, threads, [&](std::int64_t begin, std::int64_t end, int) {
        std::int64_t i = (start + begin) / base_nodes_, u = (start + begin) % base_nodes_;
        for (std::int64_t k = begin; k < end; ++k) {
            out[static_cast<std::size_t>(k)] =
                i == copies_ ? num_edges() : block_start_[static_cast<std::size_t>(i)] + before(i, u);
            if (++u == base_nodes_) {
                u = 0;
                ++i;
            }
        }
    });
}

}  // namespace outcore
