// Order of a disk cache's rows that puts rows of the same mini-batches next to each other (DiskGNN, Algorithm 1).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace outcore {

// Returns each id of the lists once, by (minhash 1, …, minhash `hashes`, id), in time linear in the ids. List j,
// ids[offsets[j], offsets[j + 1]), has the rows that mini-batch j of the segment accesses. A row's minhash is the least
// rank of its mini-batches under a random permutation of the segment's. Throws std::invalid_argument (offsets).
std::vector<std::int64_t> minhash_order(std::span<const std::int64_t> ids, std::span<const std::int64_t> offsets,
                                        std::uint32_t hashes, std::uint64_t seed);

// Returns the bytes of working memory for `num_ids` ids in `num_lists` lists.
std::uint64_t minhash_bytes(std::uint64_t num_ids, std::uint64_t num_lists, std::uint32_t hashes);

}  // namespace outcore
