// Log of the requests of a process while it is on: one stream for each backend, in the order of queueing.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "io/backend.hpp"

namespace outcore {

class RequestLog {
public:
    // Requests of one backend: u64 triples of offset, bytes, and 1 for a write.
    struct Stream {
        std::string path;
        u32 depth;
        std::vector<u64> requests;
    };

    // A backend of one file with `depth` requests in flight.
    RequestLog(int fd, u32 depth) : fd_(fd), depth_(depth), id_(next_id_++) {}

    void add(const Io& io) {
        if (on_.load(std::memory_order_relaxed)) append(io);
    }

    static void start();
    // Ends the log and returns the streams with a request, in the order of their backends.
    static std::vector<Stream> take();

private:
    void append(const Io& io);

    static inline std::atomic<bool> on_{false};
    static inline std::atomic<u64> next_id_{0};
    int fd_;
    u32 depth_;
    u64 id_;
};

}  // namespace outcore
