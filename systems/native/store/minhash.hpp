// Order of a disk cache's rows that puts rows of the same mini-batches next to each other (DiskGNN, Algorithm 1).
#pragma once

#include <span>
#include <vector>

#include "base/types.hpp"

namespace outcore {

// Returns each id of the lists once, by (minhash 1, …, minhash `hashes`, id), in time linear in the ids. List j,
// ids[offsets[j], offsets[j + 1]), has the rows that mini-batch j of the segment accesses. A row's minhash is the least
// rank of its mini-batches under a random permutation of the segment's. Throws std::invalid_argument (offsets).
std::vector<i64> minhash_order(std::span<const i64> ids, std::span<const i64> offsets, u32 hashes, u64 seed);

// Returns the bytes of working memory for `num_ids` ids in `num_lists` lists.
u64 minhash_bytes(u64 num_ids, u64 num_lists, u32 hashes);

}  // namespace outcore
