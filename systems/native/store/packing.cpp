// Threads take (partition, chunk) items in order. With `hold` the rows of a chunk wait in its own buffer until that is
// full; without, they leave at once in a few writes, and only the rest of a page waits in a buffer of 4 KiB.
#include "store/packing.hpp"

#include <cstring>
#include <iterator>
#include <system_error>

#include "base/refuse.hpp"
#include "base/team.hpp"
#include "base/xxh3.hpp"
#include "read/read_plan.hpp"

namespace outcore {
namespace {

constexpr u64 most_bytes = u64{1} << 62;  // limit of memory and of file offsets

// Writes at `offset` and advances it. Returns 0, or errno with `offset` at the failure.
int write_at(int fd, const std::byte* data, size_t bytes, u64& offset) {
    while (bytes > 0) {
        const ssize_t done = pwrite(fd, data, bytes, static_cast<off_t>(offset));
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done < 0 ? errno : EIO;
        // A direct write must resume at a page: repeat a short one from the start of the page that it ended in.
        const size_t whole =
            static_cast<size_t>(done) == bytes ? bytes : static_cast<size_t>(done) / page_bytes * page_bytes;
        if (whole == 0) return ENOSPC;
        data += whole;
        offset += whole;
        bytes -= whole;
    }
    return 0;
}

// Part of a partition from its first to its last wanted row.
struct Wanted {
    u64 first_row, last_row;
};

class Pass {
public:
    Pass(const PackSource& source, std::span<const std::string> files, std::span<const PackChunk> chunks,
         std::span<const u32> ids, const PackOptions& options)
        : source_(source),
          chunks_(chunks),
          ids_(ids),
          options_(options),
          queue_(source.path, options.read),
          states_(chunks.size()) {
        for (const auto& file : files) files_.emplace_back(file, O_WRONLY | O_DIRECT);
        find_wanted();
        u64 held = 0;
        for (size_t c = 0; c < chunks.size(); ++c) {
            State& state = states_[c];
            const u64 bytes = padded((chunks[c].end - chunks[c].begin) * source.row_bytes);
            if (held > most_bytes) throw std::bad_alloc();
            state.cursor = chunks[c].begin;
            state.at = chunks[c].offset;
            state.held_bytes = options.hold ? std::min(options.write_bytes, bytes) : page_bytes;
            held += state.held_bytes;
            // First writes differ in length: chunks of one size would fill together, a burst of writes and then none.
            state.room = state.held_bytes;
            if (bytes > state.held_bytes) state.room = padded(state.held_bytes * (1 + c % first_writes) / first_writes);
        }
        held_ = AlignedMemory(held);
        std::byte* next = held_.data();
        for (State& state : states_) next = (state.held = next) + state.held_bytes;
        const u64 one = partition_buffer_bytes(options.partition_rows, source.row_bytes);
        if (held > most_bytes || one > most_bytes / options.buffers) throw std::bad_alloc();
        memory_ = AlignedMemory(options.buffers * one);
        partition_bytes_ = one;
        left_ = std::vector<std::atomic<size_t>>(wanted_.size());
        for (auto& left : left_) left = chunks.size();
        tickets_.resize(wanted_.size());
    }

    // After an exception in one thread the others still take their turns, without packing.
    PackResult run() {
        for (u32 i = 0; i < options_.buffers; ++i) ask();
        std::vector<std::thread> threads;
        attempt([&] {
            if (start_threads(threads, options_.threads, [this](size_t) { work(); }) == 0)
                throw std::system_error(EAGAIN, std::generic_category(), "a thread to pack with");
            for (size_t p = 0; p < wanted_.size() && wait_for(p); ++p) {}
        });
        for (auto& thread : threads) thread.join();
        queue_.close();
        error_.rethrow();
        result_.partitions = wanted_.size();
        result_.writes = writes_;
        result_.bytes_written = bytes_written_;
        for (size_t c = 0; c < chunks_.size(); ++c)
            result_.digests.push_back(chunks_[c].empty() || result_.failure ? 0 : states_[c].digest.value());
        return std::move(result_);
    }

private:
    // State of a chunk, touched only by the thread that has the chunk's turn; `done` passes the turn on.
    struct State {
        u64 cursor = 0;             // position of the next id
        u64 at = 0;                 // file offset of the next write
        std::byte* held = nullptr;  // the chunk's own buffer
        u64 held_bytes = 0;
        u64 fill = 0;  // bytes in `held`
        u64 room = 0;  // with `hold`: fill at which the buffer is written
        Xxh3Stream digest;
        std::atomic<size_t> done{0};  // partitions that the chunk has passed
    };

    static constexpr u64 first_writes = 8;  // number of different lengths

    // Finds the first and the last wanted row of each partition in one pass over the ids.
    void find_wanted() {
        const u64 rows = options_.partition_rows;
        const u64 count = (source_.num_rows + rows - 1) / rows;
        constexpr u64 none = UINT64_MAX;
        std::vector<Wanted> all(count, {none, 0});
        for (const auto& chunk : chunks_) {
            Wanted* partition = nullptr;
            u64 stop = 0;  // first row after the partition
            u32 previous = 0;
            for (const u32 id : ids_.subspan(chunk.begin, chunk.end - chunk.begin)) {
                checked_row(id, source_.num_rows);
                if (id < previous) throw std::invalid_argument("the ids of a chunk do not ascend");
                if (id >= stop) {
                    partition = &all[id / rows];
                    stop = (id / rows + 1) * rows;
                    partition->first_row = std::min<u64>(partition->first_row, id);
                }
                partition->last_row = std::max<u64>(partition->last_row, id);
                previous = id;
            }
        }
        std::ranges::copy_if(all, std::back_inserter(wanted_), [](const Wanted& one) { return one.first_row != none; });
    }

    std::byte* partition_memory(size_t p) const { return memory_.data() + p % options_.buffers * partition_bytes_; }
    u64 read_offset(size_t p) const {
        return source_.row_offset(wanted_[p].first_row) / queue_.block_bytes() * queue_.block_bytes();
    }

    // Queues the read of the next partition: at the start, and after each release. Two releases may arrive in either
    // order: once the later partition is released every chunk has left the earlier one, so the memory of both is free.
    void ask() {
        const std::lock_guard lock(mutex_);
        if (asked_ == wanted_.size()) return;
        const size_t p = asked_;
        const u64 begin = read_offset(p);
        const u64 need = source_.row_offset(wanted_[p].last_row + 1) - begin;
        tickets_[p] = queue_.submit(begin, need, {partition_memory(p), partition_bytes_});
        ++asked_;
        result_.reads += up_to(need, queue_.request_bytes()) / queue_.request_bytes();
        result_.bytes_read += up_to(need, queue_.block_bytes());
        changed_.notify_all();
    }

    void fail(const std::optional<PackFailure>& failure = {}) {
        const std::lock_guard lock(mutex_);
        if (!result_.failure) result_.failure = failure;
        failed_ = true;
        changed_.notify_all();
    }

    // Waits until partition p is in memory; returns false where packing has failed.
    bool wait_for(size_t p) {
        {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [&] { return asked_ > p || failed_.load(); });
            if (failed_) return false;
        }
        const auto failure = queue_.wait(tickets_[p]).failure;
        if (failure) {
            fail(PackFailure{failure->code, false, 0, failure->offset});
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
        if (!error_.attempt(step)) fail();
    }

    void work() noexcept {
        AlignedMemory staging;
        attempt([&] { staging = AlignedMemory(options_.hold ? 0 : options_.write_bytes); });
        const size_t items = wanted_.size() * chunks_.size();
        size_t ready = 0;
        for (;;) {
            const size_t item = next_.fetch_add(1, std::memory_order_relaxed);
            if (item >= items) return;
            const size_t p = item / chunks_.size();
            const size_t c = item % chunks_.size();
            if (ready <= p) {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return ready_ > p || failed_.load(); });
                ready = ready_;
            }
            State& state = states_[c];
            // Items are taken in order, so a running thread has this chunk's previous turn: the wait ends.
            for (size_t done = state.done.load(std::memory_order_acquire); done != p;
                 done = state.done.load(std::memory_order_acquire)) {
                state.done.wait(done, std::memory_order_acquire);
            }
            if (!failed_) attempt([&] { pack(p, c, state, staging); });
            state.done.store(p + 1, std::memory_order_release);
            state.done.notify_all();
            if (left_[p].fetch_sub(1, std::memory_order_acq_rel) == 1 && !failed_) attempt([&] { ask(); });
        }
    }

    void pack(size_t p, size_t c, State& state, const AlignedMemory& staging) {
        const PackChunk& chunk = chunks_[c];
        const u64 stop = wanted_[p].last_row + 1;
        if (state.cursor == chunk.end || ids_[state.cursor] >= stop) return;
        const std::byte* base = partition_memory(p);
        const u64 base_offset = read_offset(p);
        std::byte* out = options_.hold ? state.held : staging.data();
        size_t room = options_.hold ? state.room : staging.size();
        size_t fill = state.fill;
        if (!options_.hold) std::memcpy(out, state.held, fill);
        const size_t row_bytes = source_.row_bytes;
        while (state.cursor < chunk.end && ids_[state.cursor] < stop) {
            const std::byte* row = base + (source_.row_offset(ids_[state.cursor++]) - base_offset);
            if (fill + row_bytes <= room) {
                std::memcpy(out + fill, row, row_bytes);
                fill += row_bytes;
                continue;
            }
            for (size_t done = 0; done < row_bytes;) {
                const size_t part = std::min(row_bytes - done, room - fill);
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
            const size_t whole = padded(fill);
            std::memset(out + fill, 0, whole - fill);
            flush(chunk, state, out, whole);
            return;
        }
        if (options_.hold) {
            state.fill = fill;
            return;
        }
        const size_t whole = fill / page_bytes * page_bytes;
        if (!flush(chunk, state, out, whole)) return;
        state.fill = fill - whole;
        std::memcpy(state.held, out + whole, state.fill);
    }

    bool flush(const PackChunk& chunk, State& state, const std::byte* data, size_t bytes) {
        if (bytes == 0) return true;
        state.digest.update(data, bytes);
        const int code = write_at(files_[chunk.file].fd(), data, bytes, state.at);
        if (code != 0) {
            fail(PackFailure{code, true, chunk.file, state.at});
            return false;
        }
        writes_.fetch_add(1, std::memory_order_relaxed);
        bytes_written_.fetch_add(bytes, std::memory_order_relaxed);
        return true;
    }

    const PackSource& source_;
    std::span<const PackChunk> chunks_;
    std::span<const u32> ids_;
    PackOptions options_;
    std::vector<Wanted> wanted_;
    std::deque<FileHandle> files_;
    AlignedMemory memory_;
    u64 partition_bytes_ = 0;
    RangeQueue queue_;  // declared after the memory it reads into: destroyed before it
    std::vector<State> states_;
    AlignedMemory held_;
    std::vector<std::atomic<size_t>> left_;  // per partition: chunks that have not yet taken their rows
    std::atomic<size_t> next_{0};
    std::atomic<bool> failed_{false};
    std::atomic<u64> writes_{0}, bytes_written_{0};

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<RangeQueue::Ticket> tickets_;
    size_t asked_ = 0;  // partitions given to the queue
    size_t ready_ = 0;  // partitions in memory
    PackResult result_;
    FirstError error_;
};

}  // namespace

u64 partition_buffer_bytes(u64 partition_rows, u64 row_bytes) {
    return padded(partition_rows * row_bytes) + 2 * page_bytes;
}

void check_chunks(const PackSource& source, size_t files, std::span<const PackChunk> chunks, size_t ids) {
    check_table(source.data_offset, source.num_rows, source.row_bytes);
    for (const auto& chunk : chunks)
        if (chunk.offset > most_bytes || ids > most_bytes / source.row_bytes || chunk.begin > chunk.end ||
            chunk.end > ids || chunk.file >= files || chunk.offset % page_bytes != 0)
            throw std::invalid_argument("a chunk lies outside its ids or files, or is not aligned");
}

PackResult pack_pass(const PackSource& source, std::span<const std::string> files, std::span<const PackChunk> chunks,
                     std::span<const u32> ids, const PackOptions& options) {
    if (options.partition_rows == 0 || options.threads == 0 || options.buffers == 0)
        throw std::invalid_argument("no rows, threads or buffers");
    if (options.write_bytes == 0 || options.write_bytes % page_bytes != 0)
        throw std::invalid_argument("write_bytes is not a multiple of a page");
    check_chunks(source, files.size(), chunks, ids.size());
    PackOptions fitting = options;
    fitting.partition_rows = std::min(options.partition_rows, std::max<u64>(source.num_rows, 1));
    return Pass(source, files, chunks, ids, fitting).run();
}

}  // namespace outcore
