// Progress of one request: resumes short reads from the last whole block and recognises the end of the file.
#pragma once

#include "base/types.hpp"

namespace outcore {

struct Progress {
    enum class Next { done, again, ended };

    u32 block_bytes;
    u32 need;      // bytes that complete the request
    u32 got = 0;   // bytes from the request's start that have arrived
    u32 base = 0;  // where the read in flight began, a multiple of the block

    // Records a read at `base` that returned `result` bytes; returns the next step.
    Next advance(u32 result) {
        const u32 reached = base + result;
        if (reached >= need) return Next::done;
        if (reached <= got) return Next::ended;  // the repeated read brought no new byte: the file ends here
        got = reached;
        base = got / block_bytes * block_bytes;
        return Next::again;
    }
};

}  // namespace outcore
