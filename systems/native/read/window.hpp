// Rolling window of reads: as one completes the next is queued, so that the device's queue stays full to the end.
#pragma once

#include <algorithm>
#include <bit>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "io/backend.hpp"
#include "read/read_plan.hpp"

namespace outcore {

// Buddy allocator of a bounce buffer for requests of any size, released in any order; no fragmentation outlives them.
class Buddy {
public:
    static constexpr u32 none = UINT32_MAX;

    // Hands out runs of 2^k units of `unit_bytes` each from `total_bytes`.
    Buddy(size_t total_bytes, size_t unit_bytes)
        : unit_bytes_(unit_bytes),
          units_(static_cast<u32>(total_bytes / unit_bytes)),
          heads_(32, none),
          next_(units_, none),
          prev_(units_, none),
          free_order_(units_, used) {
        for (u32 at = 0, order = 0; at < units_; at += 1U << order) {
            order = static_cast<u32>(std::bit_width(units_ - at)) - 1;
            if (at > 0) order = std::min(order, static_cast<u32>(std::countr_zero(at)));
            push(at, order);
        }
    }

    // Bytes of the buffer that a request of `bytes` occupies.
    static size_t rounded(size_t bytes, size_t unit_bytes) {
        return std::bit_ceil((bytes + unit_bytes - 1) / unit_bytes) * unit_bytes;
    }

    // Returns the byte offset of a run that holds `bytes`, or SIZE_MAX where none is free now.
    size_t allocate(size_t bytes) {
        const u32 wanted = order_of(bytes);
        u32 order = wanted;
        while (order < heads_.size() && heads_[order] == none) ++order;
        if (order >= heads_.size()) return SIZE_MAX;
        const u32 at = heads_[order];
        remove(at, order);
        while (order > wanted) {
            --order;
            push(at + (1U << order), order);
        }
        return at * unit_bytes_;
    }

    void release(size_t offset, size_t bytes) {
        auto at = static_cast<u32>(offset / unit_bytes_);
        u32 order = order_of(bytes);
        for (;;) {
            const u32 twin = at ^ (1U << order);
            if (twin >= units_ || free_order_[twin] != order) break;
            remove(twin, order);
            at = at < twin ? at : twin;
            ++order;
        }
        push(at, order);
    }

private:
    static constexpr u8 used = 255;

    u32 order_of(size_t bytes) const {
        const size_t units = (bytes + unit_bytes_ - 1) / unit_bytes_;
        return units <= 1 ? 0 : static_cast<u32>(std::bit_width(units - 1));
    }
    void push(u32 at, u32 order) {
        free_order_[at] = static_cast<u8>(order);
        prev_[at] = none;
        next_[at] = heads_[order];
        if (heads_[order] != none) prev_[heads_[order]] = at;
        heads_[order] = at;
    }
    void remove(u32 at, u32 order) {
        free_order_[at] = used;
        (prev_[at] != none ? next_[prev_[at]] : heads_[order]) = next_[at];
        if (next_[at] != none) prev_[next_[at]] = prev_[at];
    }

    size_t unit_bytes_;
    u32 units_;
    std::vector<u32> heads_, next_, prev_;
    std::vector<u8> free_order_;  // order of the free run that begins here, else `used`
};

// Destination of a request's bytes: the caller's memory, or the bounce buffer; `later`: the request cannot start yet.
struct Target {
    enum class Kind { direct, bounce, later } kind;
    std::byte* address = nullptr;
};

class Window {
public:
    Window(IoBackend& backend, const AlignedMemory& bounce, u32 unit_bytes, u32 depth, u32 block_bytes)
        : backend_(backend),
          bounce_(bounce),
          buddy_(bounce.size(), unit_bytes),
          depth_(depth),
          block_bytes_(block_bytes),
          flights_(depth),
          completions_(depth) {
        free_.reserve(depth);
        for (u32 i = 0; i < depth; ++i) free_.push_back(depth - 1 - i);
    }

    void begin(std::span<const Request> requests) {
        requests_ = requests;
        next_ = 0;
        // One entry into the kernel serves several completions, while most of the queue stays in flight. Large requests
        // wait for more completions: the block layer joins neighbours that are queued together, up to its limit.
        const bool large = !requests.empty() && requests.front().length >= large_request_bytes;
        refill_ = std::max(1U, depth_ / (large ? 4 : 16));
        failure_.reset();
        if (broken_ != 0 && !requests.empty()) failure_ = IoFailure{broken_, requests.front().offset};
    }

    // Carries out all requests; see `step`.
    template <class Admit, class Deliver>
    void run(std::span<const Request> requests, const Admit& admit, const Deliver& deliver) {
        begin(requests);
        while (!finished()) step(true, admit, deliver);
    }

    bool idle() const { return free_.size() == depth_; }
    bool finished() const { return idle() && (failure_ || next_ == requests_.size()); }
    const std::optional<IoFailure>& failure() const { return failure_; }

    // The next request to start; valid unless all have been started.
    const Request& upcoming() const { return requests_[next_]; }

    // Starts the requests that may start, then takes completions; waits for at least one if `block`. `admit(request)`
    // returns the Target; `deliver(request, bytes)` is called once for each complete request. Neither may throw.
    template <class Admit, class Deliver>
    void step(bool block, Admit&& admit, Deliver&& deliver) {
        try {
            fill(admit);
            const auto in_flight = static_cast<u32>(depth_ - free_.size());
            const u32 at_least = block ? std::min(in_flight, refill_) : 0;
            const size_t count = backend_.wait(completions_, at_least);
            for (size_t i = 0; i < count; ++i) handle(completions_[i], deliver);
        } catch (const std::system_error& error) {
            give_up(error.code().value());
        }
    }

    // Waits for the requests in flight and drops the others.
    void drain() {
        next_ = static_cast<u32>(requests_.size());
        const auto none_yet = [](const Request&) { return Target{Target::Kind::later}; };
        // (Ends also where the kernel refuses to go on: `step` then waits for it and frees every flight.)
        while (!idle()) step(true, none_yet, [](const Request&, const std::byte*) {});
    }

private:
    static constexpr u32 large_request_bytes = 256 << 10;

    struct Flight {
        bool under_way = false;
        u32 request;
        bool direct;
        std::byte* at;
        Progress progress;
    };

    template <class Admit>
    void fill(Admit&& admit) {
        while (!free_.empty() && next_ < requests_.size() && !failure_) {
            const Request& request = requests_[next_];
            Target target = admit(request);
            if (target.kind == Target::Kind::later) return;
            if (target.kind == Target::Kind::bounce) {
                const size_t offset = buddy_.allocate(request.length);
                if (offset == SIZE_MAX) return;
                target.address = bounce_.data() + offset;
            }
            const u32 tag = free_.back();
            free_.pop_back();
            flights_[tag] = {
                true, next_++, target.kind == Target::Kind::direct, target.address, {block_bytes_, request.need}};
            submit(tag);
        }
    }

    void submit(u32 tag) {
        const Flight& flight = flights_[tag];
        const Request& request = requests_[flight.request];
        const u32 base = flight.progress.base;
        backend_.queue({request.offset + base, flight.at + base, request.length - base, tag, !flight.direct});
    }

    template <class Deliver>
    void handle(const Completion& completion, Deliver&& deliver) {
        Flight& flight = flights_[completion.tag];
        const Request& request = requests_[flight.request];
        switch (flight.progress.advance(completion.result)) {
            case Progress::Next::again: return submit(completion.tag);
            case Progress::Next::ended: fail(flight.progress.failure(completion.result, request.offset)); break;
            case Progress::Next::done:
                if (!failure_) deliver(request, static_cast<const std::byte*>(flight.at));
        }
        flight.under_way = false;
        if (!flight.direct) buddy_.release(static_cast<size_t>(flight.at - bounce_.data()), request.length);
        free_.push_back(completion.tag);
    }

    // Fails the requests in flight, once the kernel is done with them, and all later ones, which it would refuse.
    void give_up(int code) {
        backend_.abandon();
        broken_ = code;
        free_.clear();
        for (u32 tag = 0; tag < depth_; ++tag) {
            if (std::exchange(flights_[tag].under_way, false)) fail({code, requests_[flights_[tag].request].offset});
            free_.push_back(tag);
        }
    }

    // Keeps the failure nearest the file's start, so that the message is the same every time.
    void fail(IoFailure failure) {
        if (!failure_ || failure.offset < failure_->offset) failure_ = failure;
    }

    IoBackend& backend_;
    const AlignedMemory& bounce_;
    Buddy buddy_;
    u32 depth_, block_bytes_;
    std::vector<Flight> flights_;
    std::vector<Completion> completions_;
    std::vector<u32> free_;
    std::span<const Request> requests_;
    u32 next_ = 0, refill_ = 1;
    std::optional<IoFailure> failure_;
    int broken_ = 0;  // errno of the kernel's refusal, once it has refused
};

}  // namespace outcore
