// Queue of file ranges, read in order in large direct requests by a thread of its own; the device's queue stays full.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "io/backend.hpp"
#include "io/direct_file.hpp"

namespace outcore {

struct RangeQueueOptions {
    u32 depth = 16;
    u32 request_bytes = 1 << 20;
    IoChoice choice;
};

class RangeQueue {
public:
    using Ticket = u64;

    // Throws std::system_error, std::invalid_argument, std::runtime_error (io_uring is needed and unavailable).
    RangeQueue(const std::string& path, const RangeQueueOptions& options);
    ~RangeQueue() { close(); }

    // Queues a read of bytes [offset, offset + need) to `memory`, which holds `need` rounded up to a block and belongs
    // to the queue until `wait` or `close`. Throws std::invalid_argument for an unaligned offset or address.
    Ticket submit(u64 offset, u64 need, std::span<std::byte> memory);
    // Result of a range: its failure, if any, and its end in seconds on the monotonic clock.
    struct Arrival {
        std::optional<IoFailure> failure;
        double seconds = 0.0;
    };

    // Waits until the range has arrived or failed and nothing writes to its memory any more. ECANCELED: the queue was
    // closed before. Throws std::logic_error for a ticket that was waited for already.
    Arrival wait(Ticket ticket);
    // Drops requests that have not begun and waits for requests in flight; afterwards nothing writes to any memory.
    void close();

    const std::string& mode() const { return mode_; }
    u32 block_bytes() const { return file_.block_bytes(); }
    u32 request_bytes() const { return options_.request_bytes; }

private:
    struct Range {
        u64 offset, need;
        std::byte* memory;
        u64 begun = 0;  // bytes for which requests were queued
        u32 in_flight = 0;
        bool taken = false;  // `wait` has returned it
        std::optional<IoFailure> failure;
        double arrived_s = 0.0;

        bool arrived() const { return in_flight == 0 && (failure || begun >= need); }
    };
    struct Flight {
        Ticket ticket;
        u64 offset;  // offset within the range
        u32 length;
        Progress progress;
    };

    void run() noexcept;
    void serve(std::unique_lock<std::mutex>& lock);
    void fill();
    void submit_flight(u32 tag);
    void handle(const Completion& completion);
    void fail_all(int code);
    Range& range(Ticket ticket) { return ranges_[ticket - first_]; }

    RangeQueueOptions options_;
    DirectFile file_;
    std::string mode_;
    std::unique_ptr<IoBackend> backend_;
    std::vector<Flight> flights_;
    std::vector<u32> free_;
    std::vector<Completion> completions_;

    std::mutex mutex_;
    std::condition_variable asked_, arrived_;
    std::deque<Range> ranges_;
    Ticket first_ = 0;   // ticket of ranges_.front()
    Ticket cursor_ = 0;  // ticket of the range whose requests are being queued
    int ended_ = 0;      // errno of all later ranges: ECANCELED, or that of the failed ring
    std::mutex closing_;
    std::thread thread_;
};

}  // namespace outcore
