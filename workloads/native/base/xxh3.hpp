// Streamed XXH3-64 by libxxhash's header: the values of `xxhsum -H3`.
#pragma once

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/types.hpp"

namespace outcore {

class Xxh3Stream {
public:
    Xxh3Stream() { XXH3_64bits_reset(&state_); }

    void update(const std::byte* data, size_t bytes) { XXH3_64bits_update(&state_, data, bytes); }
    u64 value() const { return XXH3_64bits_digest(&state_); }

private:
    XXH3_state_t state_;
};

inline u64 xxh3(std::span<const std::byte> data) { return XXH3_64bits(data.data(), data.size()); }

}  // namespace outcore
