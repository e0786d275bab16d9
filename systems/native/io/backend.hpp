// Interface to the kernel's I/O: queue reads and writes, wait for completions. Two backends: io_uring and a pread pool.
#pragma once

#include <cerrno>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/aligned_memory.hpp"

namespace outcore {

struct Io {
    u64 offset;
    std::byte* destination;  // memory to read into or to write from
    u32 length;
    u32 tag;         // returned with the completion
    bool in_bounce;  // the destination lies in the bounce buffer, which may be registered
    bool write = false;
};

struct Completion {
    u32 tag;
    i32 result;  // bytes read or written, or -errno
};

struct IoFailure {
    int code;    // errno; 0 where the file ended too early
    u64 offset;  // first byte that could not be read or written
};

// Progress of one request: resumes short reads from the last whole block and recognises the end of the file.
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

// Counts of the requests of a read.
struct RequestCounts {
    u64 requests = 0;
    u64 bytes_read = 0;    // returned by the requests
    u64 bytes_useful = 0;  // of what was wanted
    std::map<u64, u64> by_size;

    // Counts a request of `length` bytes, of which the file has `there`.
    void add(u64 length, u64 there) {
        ++requests;
        bytes_read += there;
        ++by_size[length];
    }
};

class IoBackend {
public:
    virtual ~IoBackend() = default;
    // Queues one request; at most `depth` may be queued or in flight.
    virtual void queue(const Io& io) = 0;
    // Submits all queued requests, waits until at least `at_least` have completed (0: does not wait), and returns the
    // number of completions written to `out`. Throws std::system_error where the kernel refuses; requests that it
    // accepted before stay in flight.
    virtual size_t wait(std::span<Completion> out, u32 at_least) = 0;
    // After a failure: drops requests that the kernel has not accepted and waits for the others, so that no destination
    // is written to any more. No request may be queued or waited for afterwards.
    virtual void abandon() noexcept = 0;
};

// Choice of the backend: the pread pool at once, io_uring or an error, or io_uring where it is available.
struct IoChoice {
    bool want_ring = true, need_ring = false;

    // Returns the choice of a mode: "auto", "pread" or "io_uring".
    static IoChoice named(std::string_view mode) { return {mode != "pread", mode == "io_uring"}; }
};

struct OpenedBackend {
    std::unique_ptr<IoBackend> backend;
    std::string mode;         // for people: the backend, and why it is this one
    bool registered = false;  // the kernel has registered the bounce buffer
};

// Opens a backend for one file: `depth` requests in flight, by up to `threads` threads where there is no ring.
// `bounce`: a buffer to register with the ring. Throws std::runtime_error where io_uring is needed and unavailable,
// std::system_error where the host gives no thread.
OpenedBackend open_backend(const IoChoice& choice, int fd, u32 depth, u32 threads,
                           const AlignedMemory* bounce = nullptr);

}  // namespace outcore
