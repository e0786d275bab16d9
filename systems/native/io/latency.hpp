// Histograms of the latency of requests: one log for each backend, summed over the process when asked for.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <vector>

#include "base/aligned_memory.hpp"

namespace outcore {

// Log-linear buckets as HdrHistogram lays them out: 32 buckets for every power of two, so that a bucket is at most 3.1 %
// wide; the first 32 are 256 ns wide each.
struct LatencyBuckets {
    static constexpr u32 unit_bits = 8, linear_bits = 5, octaves = 27;
    static constexpr u32 per_octave = 1U << linear_bits;
    static constexpr u32 count = per_octave * (octaves + 1);

    // Returns the bucket of a latency; the last one also holds whatever is longer (above 1,099 s).
    static u32 of(u64 nanoseconds) {
        const u64 units = nanoseconds >> unit_bits;
        if (units < per_octave) return static_cast<u32>(units);
        const auto octave = static_cast<u32>(std::bit_width(units)) - linear_bits;
        if (octave > octaves) return count - 1;
        const auto within = static_cast<u32>(units >> (octave - 1)) - per_octave;
        return octave * per_octave + within;
    }

    // Returns the longest latency of a bucket in nanoseconds.
    static u64 longest(u32 bucket) {
        const u32 octave = bucket / per_octave;
        const u32 shift = octave > 0 ? octave - 1 : 0;
        const u64 units = octave > 0 ? bucket % per_octave + per_octave : bucket;
        return ((units + 1) << (shift + unit_bits)) - 1;
    }
};

// Classes of requests by size: up to 512 B, 1 KiB, … 1 MiB, and larger ones.
struct SizeClasses {
    static constexpr u32 smallest_bits = 9, count = 13;

    static u32 of(u32 bytes) {
        const auto bits = static_cast<u32>(bytes > 1 ? std::bit_width(bytes - 1) : 0);
        return bits <= smallest_bits ? 0 : std::min(bits - smallest_bits, count - 1);
    }
};

// Counts of requests by direction (read, write), size class and latency bucket. One thread at a time adds; any thread
// may sum. Counts only grow, modulo 2^32: an epoch's counts are the difference of two sums.
class LatencyLog {
public:
    static constexpr u32 directions = 2;
    static constexpr size_t cells = size_t{directions} * SizeClasses::count * LatencyBuckets::count;
    using Clock = std::chrono::steady_clock;

    LatencyLog();
    ~LatencyLog();
    LatencyLog(const LatencyLog&) = delete;
    LatencyLog& operator=(const LatencyLog&) = delete;

    // Whether backends measure; a benchmark of the cost turns it off.
    static bool enabled() { return enabled_.load(std::memory_order_relaxed); }
    static void enable(bool on) { enabled_.store(on, std::memory_order_relaxed); }

    static u64 now_ns() {
        const auto since_boot = Clock::now().time_since_epoch();
        return static_cast<u64>(std::chrono::duration_cast<std::chrono::nanoseconds>(since_boot).count());
    }

    void add(bool write, u32 bytes, u64 nanoseconds) noexcept {
        const u32 row = (write ? SizeClasses::count : 0) + SizeClasses::of(bytes);
        auto& count = counts_[size_t{row} * LatencyBuckets::count + LatencyBuckets::of(nanoseconds)];
        // No atomic increment: there is one writer.
        count.store(count.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    }

    // Returns the sum over all logs of this process, ended ones included.
    static std::vector<u32> summed();

private:
    void add_to(std::vector<u32>& sum) const;

    static inline std::atomic<bool> enabled_{true};
    AlignedMemory memory_;  // pages that no request needs are never touched
    std::atomic<u32>* counts_;
};

}  // namespace outcore
