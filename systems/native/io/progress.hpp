// Progress of one request: resumes short reads from the last whole block and recognises the end of the file.
#pragma once

#include <cerrno>

#include "base/types.hpp"
#include "io/backend.hpp"

namespace outcore {

struct Progress {
    enum class Next { done, again, ended };

    u32 block_bytes;
    u32 need;      // bytes that complete the request
    u32 got = 0;   // bytes from the request's start that have arrived
    u32 base = 0;  // where the read in flight began, a multiple of the block

    // Records a read at `base` that returned `result` bytes, or -errno; returns the next step.
    Next advance(i32 result) {
        if (result < 0) return result == -EAGAIN || result == -EINTR ? Next::again : Next::ended;
        const u32 reached = base + static_cast<u32>(result);
        if (reached >= need) return Next::done;
        if (reached <= got) return Next::ended;  // the repeated read brought no new byte: the file ends here
        got = reached;
        base = got / block_bytes * block_bytes;
        return Next::again;
    }

    // Returns why the request, at `offset` of the file, ended with `result`.
    IoFailure failure(i32 result, u64 offset) const {
        return result < 0 ? IoFailure{-result, offset + base} : IoFailure{0, offset + got};
    }
};

}  // namespace outcore
