// Threads take (partition, chunk) items in order. With `hold` the rows of a chunk wait in its own buffer until that is
// full; without, they leave at once in a few writes, and only the rest of a page waits in a buffer of 4 KiB.
#include "packing.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "aligned_memory.hpp"
#include "first_error.hpp"
#include "read_plan.hpp"
#include "xxh3.hpp"

namespace outcore {
namespace {

constexpr std::uint64_t most_bytes = std::uint64_t{1} << 62;  // limit of memory and of file offsets

std::uint64_t padded(std::uint64_t bytes) { return (bytes + pack_page - 1) / pack_page * pack_page; }

class WriteFile {
public:
    explicit WriteFile(const std::string& path) {
        fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT);
        if (fd_ < 0 && errno == EINVAL) fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);  // no O_DIRECT, as on tmpfs
        if (fd_ < 0) throw std::system_error(errno, std::generic_category(), path);
    }
    WriteFile(const WriteFile&) = delete;
    WriteFile& operator=(const WriteFile&) = delete;
    ~WriteFile() { close(fd_); }

    // Writes at `offset` and advances it. Returns 0, or errno with `offset` at the failure.
    int write(const std::byte* data, std::size_t bytes, std::uint64_t& offset) const {
        while (bytes > 0) {
            const ssize_t done = pwrite(fd_, data, bytes, static_cast<off_t>(offset));
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) return done < 0 ? errno : EIO;
            // A direct write must resume at a page: repeat a short one from the start of the page that it ended in.
            const std::size_t whole = static_cast<std::size_t>(done) == bytes ? bytes : static_cast<std::size_t>(done) / pack_page * pack_page;
            if (whole == 0) return ENOSPC;
            data += whole;
            offset += whole;
            bytes -= whole;
        }
        return 0;
    }

private:
    int fd_;
};

// Part of a partition from its first to its last wanted row.
struct Wanted {
    std::uint64_t index;
    std::uint64_t first_row;
    std::uint64_t last_row;
};

class Pass {
public:
    Pass(const PackSource& source, std::span<const std::string> files, std::span<const PackChunk> chunks,
         std::span<const std::uint32_t> ids, const PackOptions& options)
        : source_(source), chunks_(chunks), ids_(ids), options_(options), queue_(source.path, options.read),
          states_(chunks.size()) {
        for (const auto& file : files) files_.emplace_back(file);
        find_wanted();
        std::uint64_t held = 0;
        for (std::size_t c = 0; c < chunks.size(); ++c) {
            State& state = states_[c];
            const std::uint64_t bytes = padded((chunks[c].end - chunks[c].begin) * source.row_bytes);
            if (held > most_bytes) throw std::bad_alloc();
            state.cursor = chunks[c].begin;
            state.at = chunks[c].offset;
            if (bytes > 0) state.digest = Xxh3Stream(bytes);
            state.held_bytes = options.hold ? std::min(options.write_bytes, bytes) : pack_page;
            held += state.held_bytes;
            // First writes differ in length: chunks of one size would fill together, a burst of writes and then none.
            state.room = state.held_bytes;
            if (bytes > state.held_bytes) state.room = padded(state.held_bytes * (1 + c % first_writes) / first_writes);
        }
        held_ = AlignedMemory(held);
        std::byte* next = held_.data();
        for (State& state : states_) next = (state.held = next) + state.held_bytes;
        const std::uint64_t one = partition_buffer_bytes(options.partition_rows, source.row_bytes);
        if (held > most_bytes || one > most_bytes / options.buffers) throw std::bad_alloc();
        memory_ = AlignedMemory(options.buffers * one);
        partition_bytes_ = one;
        left_ = std::vector<std::atomic<std::size_t>>(wanted_.size());
        for (auto& left : left_) left = chunks.size();
        tickets_.resize(wanted_.size());
    }

    // After an exception in one thread the others still take their turns, without packing.
    PackResult run() {
        for (std::uint32_t i = 0; i < options_.buffers; ++i) ask();
        std::vector<std::thread> threads;
        attempt([&] {
            if (start_threads(threads, options_.threads, [this](std::size_t) { work(); }) == 0)
                throw std::system_error(EAGAIN, std::generic_category(), "a thread to pack with");
            for (std::size_t p = 0; p < wanted_.size() && wait_for(p); ++p) {}
        });
        for (auto& thread : threads) thread.join();
        queue_.close();
        error_.rethrow();
        result_.partitions = wanted_.size();
        result_.writes = writes_;
        result_.bytes_written = bytes_written_;
        for (std::size_t c = 0; c < chunks_.size(); ++c) {
            const bool empty = chunks_[c].begin == chunks_[c].end;
            result_.digests.push_back(empty || result_.failure ? 0 : states_[c].digest.value());
        }
        return std::move(result_);
    }

private:
    // State of a chunk, touched only by the thread that has the chunk's turn; `done` passes the turn on.
    struct State {
        std::uint64_t cursor = 0;  // position of the next id
        std::uint64_t at = 0;      // file offset of the next write
        std::byte* held = nullptr;  // the chunk's own buffer
        std::uint64_t held_bytes = 0;
        std::uint64_t fill = 0;    // bytes in `held`
        std::uint64_t room = 0;    // with `hold`: fill at which the buffer is written
        Xxh3Stream digest;
        std::atomic<std::size_t> done{0};  // partitions that the chunk has passed
    };

    static constexpr std::uint64_t first_writes = 8;  // number of different lengths

    // Finds the first and the last wanted row of each partition in one pass over the ids.
    void find_wanted() {
        const std::uint64_t rows = options_.partition_rows;
        const std::uint64_t count = (source_.num_rows + rows - 1) / rows;
        constexpr std::uint64_t none = UINT64_MAX;
        std::vector<Wanted> all(count, {0, none, 0});
        for (const auto& chunk : chunks_) {
            std::uint64_t partition = none;
            std::uint64_t stop = 0;
            std::uint32_t previous = 0;
            for (std::uint64_t i = chunk.begin; i < chunk.end; ++i) {
                const std::uint32_t id = ids_[i];
                if (id >= source_.num_rows) {
                    throw std::out_of_range("row " + std::to_string(id) + " of a table of " +
                                            std::to_string(source_.num_rows) + " rows");
                }
                if (id < previous) throw std::invalid_argument("the ids of a chunk do not ascend");
                if (partition == none || id >= stop) {
                    if (partition != none) all[partition].last_row = std::max<std::uint64_t>(all[partition].last_row, previous);
                    partition = id / rows;
                    stop = (partition + 1) * rows;
                    all[partition].first_row = std::min<std::uint64_t>(all[partition].first_row, id);
                }
                previous = id;
            }
            if (partition != none) all[partition].last_row = std::max<std::uint64_t>(all[partition].last_row, previous);
        }
        for (std::uint64_t p = 0; p < count; ++p) {
            if (all[p].first_row != none) wanted_.push_back({p, all[p].first_row, all[p].last_row});
        }
    }

    std::byte* partition_memory(std::size_t p) const { return memory_.data() + p % options_.buffers * partition_bytes_; }
    std::uint64_t row_offset(std::uint64_t row) const { return source_.data_offset + row * source_.row_bytes; }
    std::uint64_t read_offset(std::size_t p) const {
        return row_offset(wanted_[p].first_row) / queue_.block_bytes() * queue_.block_bytes();
    }

    // Queues the read of the next partition: at the start, and after each release. Two releases may arrive in either
    // order: once the later partition is released every chunk has left the earlier one, so the memory of both is free.
    void ask() {
        const std::lock_guard lock(mutex_);
        if (asked_ == wanted_.size()) return;
        const std::size_t p = asked_;
        const std::uint64_t begin = read_offset(p);
        const std::uint64_t need = row_offset(wanted_[p].last_row + 1) - begin;
        tickets_[p] = queue_.submit(begin, need, {partition_memory(p), partition_bytes_});
        ++asked_;
        const std::uint64_t block = queue_.block_bytes();
        result_.reads += (need + queue_.request_bytes() - 1) / queue_.request_bytes();
        result_.bytes_read += (need + block - 1) / block * block;
        changed_.notify_all();
    }

    void fail(PackFailure failure) {
        const std::lock_guard lock(mutex_);
        if (!result_.failure) result_.failure = failure;
        failed_ = true;
        changed_.notify_all();
    }

    // Waits until partition p is in memory; returns false where packing has failed.
    bool wait_for(std::size_t p) {
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return asked_ > p || failed_.load(); });
            if (failed_) return false;
        }
        const auto failure = queue_.wait(tickets_[p]).failure;
        if (failure) {
            fail({failure->code, false, 0, failure->offset});
            return false;
        }
        const std::lock_guard lock(mutex_);
        ready_ = p + 1;
        changed_.notify_all();
        return true;
    }

    // Runs a step of a thread; `run` rethrows its exception.
    template <class Step>
    void attempt(const Step& step) noexcept {
        if (error_.attempt(step)) return;
        const std::lock_guard lock(mutex_);
        failed_ = true;
        changed_.notify_all();
    }

    void work() noexcept {
        AlignedMemory staging;
        attempt([&] { staging = AlignedMemory(options_.hold ? 0 : options_.write_bytes); });
        const std::size_t items = wanted_.size() * chunks_.size();
        std::size_t ready = 0;
        for (;;) {
            const std::size_t item = next_.fetch_add(1, std::memory_order_relaxed);
            if (item >= items) return;
            const std::size_t p = item / chunks_.size();
            const std::size_t c = item % chunks_.size();
            if (ready <= p) {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return ready_ > p || failed_.load(); });
                ready = ready_;
            }
            State& state = states_[c];
            // Items are taken in order, so a running thread has this chunk's previous turn: the wait ends.
            for (std::size_t done = state.done.load(std::memory_order_acquire); done != p;
                 done = state.done.load(std::memory_order_acquire)) {
                state.done.wait(done, std::memory_order_acquire);
            }
            if (!failed_) attempt([&] { pack(p, c, state, staging); });
            state.done.store(p + 1, std::memory_order_release);
            state.done.notify_all();
            if (left_[p].fetch_sub(1, std::memory_order_acq_rel) == 1 && !failed_) attempt([&] { ask(); });
        }
    }

    void pack(std::size_t p, std::size_t c, State& state, const AlignedMemory& staging) {
        const PackChunk& chunk = chunks_[c];
        const std::uint64_t stop = wanted_[p].last_row + 1;
        if (state.cursor == chunk.end || ids_[state.cursor] >= stop) return;
        const std::byte* base = partition_memory(p);
        const std::uint64_t base_offset = read_offset(p);
        std::byte* out = options_.hold ? state.held : staging.data();
        std::size_t room = options_.hold ? state.room : staging.size();
        std::size_t fill = state.fill;
        if (!options_.hold) std::memcpy(out, state.held, fill);
        const std::size_t row_bytes = source_.row_bytes;
        while (state.cursor < chunk.end && ids_[state.cursor] < stop) {
            const std::byte* row = base + (row_offset(ids_[state.cursor++]) - base_offset);
            if (fill + row_bytes <= room) {
                std::memcpy(out + fill, row, row_bytes);
                fill += row_bytes;
                continue;
            }
            for (std::size_t done = 0; done < row_bytes;) {
                const std::size_t part = std::min(row_bytes - done, room - fill);
                std::memcpy(out + fill, row + done, part);
                done += part;
                fill += part;
                if (fill == room) {
                    if (!flush(chunk, state, out, fill)) return;
                    fill = 0;
                    if (options_.hold) room = state.room = state.held_bytes;
                }
            }
        }
        if (state.cursor == chunk.end) {
            const std::size_t whole = padded(fill);
            std::memset(out + fill, 0, whole - fill);
            flush(chunk, state, out, whole);
            return;
        }
        if (options_.hold) {
            state.fill = fill;
            return;
        }
        const std::size_t whole = fill / pack_page * pack_page;
        if (!flush(chunk, state, out, whole)) return;
        state.fill = fill - whole;
        std::memcpy(state.held, out + whole, state.fill);
    }

    bool flush(const PackChunk& chunk, State& state, const std::byte* data, std::size_t bytes) {
        if (bytes == 0) return true;
        state.digest.update(data, bytes);
        const int code = files_[chunk.file].write(data, bytes, state.at);
        if (code != 0) {
            fail({code, true, chunk.file, state.at});
            return false;
        }
        writes_.fetch_add(1, std::memory_order_relaxed);
        bytes_written_.fetch_add(bytes, std::memory_order_relaxed);
        return true;
    }

    const PackSource& source_;
    std::span<const PackChunk> chunks_;
    std::span<const std::uint32_t> ids_;
    PackOptions options_;
    std::vector<Wanted> wanted_;
    std::deque<WriteFile> files_;
    AlignedMemory memory_;
    std::uint64_t partition_bytes_ = 0;
    RangeQueue queue_;  // declared after the memory it reads into: destroyed before it
    std::vector<State> states_;
    AlignedMemory held_;
    std::vector<std::atomic<std::size_t>> left_;  // per partition: chunks that have not yet taken their rows
    std::atomic<std::size_t> next_{0};
    std::atomic<bool> failed_{false};
    std::atomic<std::uint64_t> writes_{0};
    std::atomic<std::uint64_t> bytes_written_{0};

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<RangeQueue::Ticket> tickets_;
    std::size_t asked_ = 0;  // partitions given to the queue
    std::size_t ready_ = 0;  // partitions in memory
    PackResult result_;
    FirstError error_;
};

}  // namespace

std::uint64_t partition_buffer_bytes(std::uint64_t partition_rows, std::uint64_t row_bytes) {
    return ((partition_rows * row_bytes + pack_page - 1) / pack_page + 2) * pack_page;
}

PackResult pack_pass(const PackSource& source, std::span<const std::string> files, std::span<const PackChunk> chunks,
                     std::span<const std::uint32_t> ids, const PackOptions& options) {
    if (options.partition_rows == 0 || options.threads == 0 || options.buffers == 0) throw std::invalid_argument("no rows, threads or buffers");
    if (options.write_bytes == 0 || options.write_bytes % pack_page != 0) throw std::invalid_argument("write_bytes is not a multiple of a page");
    check_table(source.data_offset, source.num_rows, source.row_bytes);
    for (const auto& chunk : chunks) {
        if (chunk.offset > most_bytes || ids.size() > most_bytes / source.row_bytes || chunk.begin > chunk.end || chunk.end > ids.size() || chunk.file >= files.size() || chunk.offset % pack_page != 0) {
            throw std::invalid_argument("a chunk lies outside its ids or files, or is not aligned");
        }
    }
    PackOptions fitting = options;
    fitting.partition_rows = std::min(options.partition_rows, std::max<std::uint64_t>(source.num_rows, 1));
    return Pass(source, files, chunks, ids, fitting).run();
}

Ascending ascending(std::span<const std::int64_t> ids) {
    if (ids.size() > UINT32_MAX) throw std::length_error("more than 2^32 rows in one list");
    Ascending result;
    auto& [sorted, from] = result;
    sorted.resize(ids.size());
    from.resize(ids.size());
    std::uint32_t largest = 0;
    bool ordered = true;
    for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] < 0 || ids[i] > UINT32_MAX) throw std::out_of_range("row " + std::to_string(ids[i]));
        sorted[i] = static_cast<std::uint32_t>(ids[i]);
        from[i] = static_cast<std::uint32_t>(i);
        largest = std::max(largest, sorted[i]);
        ordered = ordered && (i == 0 || sorted[i - 1] <= sorted[i]);
    }
    if (ordered) return result;
    constexpr int digit_bits = 11;
    std::vector<std::uint32_t> other(ids.size());
    std::vector<std::uint32_t> other_from(ids.size());
    for (int shift = 0; shift < static_cast<int>(std::bit_width(largest)); shift += digit_bits) {
        std::array<std::uint32_t, 1 << digit_bits> begin{};
        const auto digit = [shift](std::uint32_t id) { return (id >> shift) & ((1U << digit_bits) - 1); };
        for (const auto id : sorted) ++begin[digit(id)];
        std::uint32_t sum = 0;
        for (auto& count : begin) sum += std::exchange(count, sum);
        for (std::size_t i = 0; i < sorted.size(); ++i) {
            const std::uint32_t to = begin[digit(sorted[i])]++;
            other[to] = sorted[i];
            other_from[to] = from[i];
        }
        sorted.swap(other);
        from.swap(other_from);
    }
    return result;
}

}  // namespace outcore
