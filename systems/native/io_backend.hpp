// What is asked of the kernel: queue reads and writes, then wait for some to complete. Two ways: io_uring, a pread pool.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace outcore {

struct Io {
    std::uint64_t offset;
    std::byte* destination;  // of a read; of a write, what is written
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
    // Takes one; at most `depth` may be queued or in flight.
    virtual void queue(const Io& io) = 0;
    // Hands all that is queued to the kernel, waits until at least `at_least` have completed, and returns the completions
    // that there are, up to out.size(). Nothing waits when `at_least` is 0.
    // Throws std::system_error where the kernel refuses; what it took before is under way all the same.
    virtual std::size_t wait(std::span<Completion> out, std::uint32_t at_least) = 0;
    // After a failure: drops what the kernel has not been given and waits for the rest, so that afterwards no destination is
    // written to any more. Nothing may be queued or waited for later.
    virtual void abandon() noexcept = 0;
};

}  // namespace outcore
