// Interface to the kernel's I/O: queue reads and writes, wait for completions. Two backends: io_uring and a pread pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace outcore {

struct Io {
    std::uint64_t offset;
    std::byte* destination;  // memory to read into or to write from
    std::uint32_t length;
    std::uint32_t tag;     // returned with the completion
    bool in_bounce;        // the destination lies in the bounce buffer, which may be registered
    bool write = false;
};

struct Completion {
    std::uint32_t tag;
    std::int32_t result;  // bytes read or written, or -errno
};

class IoBackend {
public:
    virtual ~IoBackend() = default;
    // Queues one request; at most `depth` may be queued or in flight.
    virtual void queue(const Io& io) = 0;
    // Submits all queued requests, waits until at least `at_least` have completed (0: does not wait), and returns the
    // number of completions written to `out`. Throws std::system_error where the kernel refuses; requests that it
    // accepted before stay in flight.
    virtual std::size_t wait(std::span<Completion> out, std::uint32_t at_least) = 0;
    // After a failure: drops requests that the kernel has not accepted and waits for the others, so that no destination
    // is written to any more. No request may be queued or waited for afterwards.
    virtual void abandon() noexcept = 0;
};

}  // namespace outcore
