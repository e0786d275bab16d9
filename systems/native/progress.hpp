// How far one request has come: short reads are finished from the last whole block, the end of the file is recognised.
#pragma once

#include <cstdint>

namespace outcore {

struct Progress {
    enum class Next { done, again, ended };

    std::uint32_t block_bytes;
    std::uint32_t need;      // bytes without which the request is not done
    std::uint32_t got = 0;   // bytes from the request's start that have arrived
    std::uint32_t base = 0;  // where the read in flight began, a multiple of the block

    // A read that began at `base` returned `result` bytes.
    Next advance(std::uint32_t result) {
        const std::uint32_t reached = base + result;
        if (reached >= need) return Next::done;
        if (reached <= got) return Next::ended;  // asked again and nothing new came: the file ends here
        got = reached;
        base = got / block_bytes * block_bytes;
        return Next::again;
    }
};

}  // namespace outcore
