// The order of a disk cache's rows: rows that the same mini-batches access come to lie together (DiskGNN, Algorithm 1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace outcore {

// Every id that occurs in the lists, once, by (minhash 1, …, minhash `hashes`, id). List j is ids[offsets[j],
// offsets[j + 1]): what mini-batch j of the segment accesses. A row's minhash is the least rank, under a random
// permutation of the segment's mini-batches, of those that access it. Linear in the ids.
std::vector<std::int64_t> minhash_order(std::span<const std::int64_t> ids, std::span<const std::int64_t> offsets,
                                        std::uint32_t hashes, std::uint64_t seed);

// Bytes of working memory for `num_ids` ids in `num_lists` lists.
std::uint64_t minhash_bytes(std::uint64_t num_ids, std::uint64_t num_lists, std::uint32_t hashes);

}  // namespace outcore
