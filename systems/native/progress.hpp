// Progress of one request: resumes short reads from the last whole block and recognises the end of the file.
#pragma once

#include <cstdint>

namespace outcore {

struct Progress {
    enum class Next { done, again, ended };

    std::uint32_t block_bytes;
    std::uint32_t need;      // bytes that complete the request
    std::uint32_t got = 0;   // bytes from the request's start that have arrived
    std::uint32_t base = 0;  // where the read in flight began, a multiple of the block

    // Records a read at `base` that returned `result` bytes; returns the next step.
    Next advance(std::uint32_t result) {
        const std::uint32_t reached = base + result;
        if (reached >= need) return Next::done;
        if (reached <= got) return Next::ended;  // the repeated read brought no new byte: the file ends here
        got = reached;
        base = got / block_bytes * block_bytes;
        return Next::again;
    }
};

}  // namespace outcore
