// One thread walks the table, fills buffers and has full ones written, so that reads, copies and writes go on together.
#include "distribute.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <stdexcept>
#include <system_error>

#include "pread_pool.hpp"
#include "ring.hpp"
#include "xxh3.hpp"

namespace outcore {
namespace {

constexpr std::uint64_t page_bytes = PieceFile::page_bytes;
constexpr std::uint64_t first_writes = 8;  // different lengths, so that chunks of one size do not fill at the same time

std::uint64_t padded(std::uint64_t bytes) { return (bytes + page_bytes - 1) / page_bytes * page_bytes; }

// Writes full buffers, several at a time; each goes back to the free ones afterwards. Used by one thread.
class Writers {
public:
    Writers(const std::string& path, const DistributeOptions& options, std::uint64_t buffers)
        : memory_(buffers * options.buffer_bytes), writes_(options.writers) {
        fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC | O_DIRECT);
        if (fd_ < 0 && errno == EINVAL) fd_ = open(path.c_str(), O_WRONLY | O_CLOEXEC);  // a file system without O_DIRECT
        if (fd_ < 0) throw std::system_error(errno, std::generic_category(), path);
        for (std::uint64_t i = 0; i < buffers; ++i) free_.push_back(memory_.data() + i * options.buffer_bytes);
        for (std::uint32_t i = 0; i < options.writers; ++i) places_.push_back(i);
        try {
            backend_ = make_backend(options, fd_);
        } catch (...) {
            close(fd_);
            throw;
        }
    }
    Writers(const Writers&) = delete;
    Writers& operator=(const Writers&) = delete;
    ~Writers() {
        finish();
        backend_.reset();
        close(fd_);
    }

    std::byte* take() {
        while (free_.empty()) reap(1);
        std::byte* buffer = free_.back();
        free_.pop_back();
        return buffer;
    }

    void write(std::byte* buffer, std::uint64_t bytes, std::uint64_t offset) {
        if (failure_) {  // nothing that follows will be read
            free_.push_back(buffer);
            return;
        }
        while (places_.empty()) reap(1);
        const std::uint32_t tag = places_.back();
        places_.pop_back();
        writes_[tag] = {buffer, bytes, offset, 0};
        queue(tag);
        reap(0);
    }

    // Waits for all that was given; the first failure.
    std::optional<DistributeFailure> finish() {
        while (places_.size() < writes_.size()) reap(1);
        return failure_;
    }

    bool failed() const { return failure_.has_value(); }

private:
    struct Write {
        std::byte* buffer;
        std::uint64_t bytes, offset, done;
    };

    static std::unique_ptr<IoBackend> make_backend(const DistributeOptions& options, int fd) {
#ifdef OUTCORE_HAS_LIBURING
        if (options.want_ring) {
            try {
                return std::make_unique<Ring>(options.writers, fd);
            } catch (const std::system_error&) {
                if (options.need_ring) throw;
            }
        }
#endif
        return std::make_unique<PreadPool>(options.writers, fd);
    }

    void queue(std::uint32_t tag) {
        const Write& write = writes_[tag];
        backend_->queue({write.offset + write.done, write.buffer + write.done, static_cast<std::uint32_t>(write.bytes - write.done), tag, false, true});
    }

    void reap(std::uint32_t at_least) {
        std::array<Completion, 64> completions;
        std::size_t count = 0;
        try {
            count = backend_->wait(completions, at_least);
        } catch (const std::system_error& error) {  // the ring itself failed: nothing more will come of it
            for (std::uint32_t tag = 0; tag < writes_.size(); ++tag) {
                if (std::find(places_.begin(), places_.end(), tag) == places_.end()) release(tag, error.code().value());
            }
        }
        for (std::size_t i = 0; i < count; ++i) handle(completions[i]);
    }

    void handle(const Completion& completion) {
        Write& write = writes_[completion.tag];
        if (completion.result == -EAGAIN || completion.result == -EINTR) return queue(completion.tag);
        if (completion.result < 0) return release(completion.tag, -completion.result);
        const auto got = static_cast<std::uint64_t>(completion.result), left = write.bytes - write.done;
        if (got >= left) return release(completion.tag, 0);
        // A direct write goes on at a page: a short one that ends inside is repeated from the page's start.
        if (got < page_bytes) return release(completion.tag, ENOSPC);
        write.done += got / page_bytes * page_bytes;
        queue(completion.tag);
    }

    void release(std::uint32_t tag, int code) {
        const Write& write = writes_[tag];
        if (code != 0 && !failure_) failure_ = DistributeFailure{code, true, write.offset + write.done};
        free_.push_back(write.buffer);
        places_.push_back(tag);
    }

    int fd_ = -1;
    AlignedMemory memory_;
    std::vector<std::byte*> free_;
    std::vector<Write> writes_;
    std::vector<std::uint32_t> places_;  // in `writes_`, that are free
    std::optional<DistributeFailure> failure_;
    std::unique_ptr<IoBackend> backend_;  // after the memory that it writes from
};

struct State {
    std::uint64_t marked, cursor;  // next ids: to be asked for, to be copied
    std::uint64_t at;              // of the file, where the buffer will go
    std::byte* buffer = nullptr;
    std::uint64_t fill = 0, room = 0;
    Xxh3Stream digest;
};

std::uint64_t region_rows(const DistributeOptions& options, std::uint64_t row_bytes) {
    const std::uint64_t rows = std::max<std::uint64_t>(1, options.region_bytes / row_bytes);
    // Regions that begin at pages share none.
    const std::uint64_t whole = page_bytes % row_bytes == 0 ? page_bytes / row_bytes : 1;
    return std::max<std::uint64_t>(1, rows / whole) * whole;
}

std::uint64_t region_memory(const DistributeOptions& options, std::uint64_t row_bytes) {
    return padded(region_rows(options, row_bytes) * row_bytes) + 2 * page_bytes;
}

}  // namespace

std::uint64_t distribute_bytes(const DistributeOptions& options, std::uint64_t row_bytes, std::uint64_t chunks) {
    return options.regions * region_memory(options, row_bytes) + (chunks + 2 * options.writers) * std::uint64_t{options.buffer_bytes} +
           chunks * sizeof(State) + options.writers * (std::uint64_t{128} << 10);
}

DistributeResult distribute(const DistributeTable& table, const std::string& file, std::span<const DistributeChunk> chunks,
                            std::span<const std::uint32_t> ids, const DistributeOptions& options, const std::atomic<bool>& stop) {
    if (options.buffer_bytes == 0 || options.buffer_bytes % page_bytes != 0 || options.writers == 0 || options.regions == 0 || table.row_bytes == 0)
        throw std::invalid_argument("buffers are whole pages; there are writers, regions and bytes in a row");
    DistributeResult result;
    std::vector<State> states(chunks.size());
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        const DistributeChunk& chunk = chunks[c];
        if (chunk.begin > chunk.end || chunk.end > ids.size() || chunk.offset % page_bytes != 0)
            throw std::invalid_argument("a chunk lies outside its ids, or is not aligned");
        for (std::uint64_t i = chunk.begin; i < chunk.end; ++i) {
            if (ids[i] >= table.num_rows) throw std::out_of_range("row " + std::to_string(ids[i]) + " of a table of " + std::to_string(table.num_rows) + " rows");
            if (i > chunk.begin && ids[i] <= ids[i - 1]) throw std::invalid_argument("the ids of a chunk do not ascend");
        }
        State& state = states[c];
        state.marked = state.cursor = chunk.begin;
        state.at = chunk.offset;
        const std::uint64_t bytes = padded((chunk.end - chunk.begin) * table.row_bytes);
        if (bytes > 0) state.digest = Xxh3Stream(bytes);
        state.room = std::min<std::uint64_t>(bytes, options.buffer_bytes);
        if (bytes > options.buffer_bytes) state.room = padded(options.buffer_bytes * (1 + c % first_writes) / first_writes);
    }
    const std::uint64_t rows = region_rows(options, table.row_bytes), memory = region_memory(options, table.row_bytes);
    const auto row_at = [&](std::uint64_t row) { return table.data_offset + row * table.row_bytes; };
    PieceFile source(table.path, {static_cast<std::uint32_t>(memory), options.regions, options.depth, row_at(table.num_rows),
                                  options.gap_bytes, options.want_ring, options.need_ring, 0});
    const std::uint64_t unit = source.unit_bytes();
    Writers writers(file, options, chunks.size() + 2 * std::uint64_t{options.writers});
    const auto flush = [&](State& state, std::uint64_t bytes) {
        state.digest.update(state.buffer, bytes);
        writers.write(state.buffer, bytes, state.at);
        ++result.writes;
        result.bytes_written += bytes;
        state.at += bytes;
        state.buffer = nullptr;
        state.fill = 0;
        state.room = options.buffer_bytes;
    };
    struct Asked {
        std::uint64_t last;  // row behind the region
        PieceFile::Read read;
    };
    std::deque<Asked> asked;
    std::uint64_t next = 0;  // row
    PieceFile::Units units(memory / unit / 64 + 1);
    for (;;) {
        while (next < table.num_rows && source.has_room()) {
            // The next region that anybody wants a row of.
            std::uint64_t first = table.num_rows;
            for (std::size_t c = 0; c < chunks.size(); ++c)
                if (states[c].marked < chunks[c].end) first = std::min<std::uint64_t>(first, ids[states[c].marked]);
            if (first == table.num_rows) {
                next = first;
                break;
            }
            next = first / rows * rows;
            const std::uint64_t last = std::min(table.num_rows, next + rows), base = row_at(next) / page_bytes * page_bytes;
            std::fill(units.begin(), units.end(), 0);
            for (std::size_t c = 0; c < chunks.size(); ++c) {
                State& state = states[c];
                for (; state.marked < chunks[c].end && ids[state.marked] < last; ++state.marked) {
                    const std::uint64_t at = row_at(ids[state.marked]) - base;
                    for (std::uint64_t u = at / unit; u <= (at + table.row_bytes - 1) / unit; ++u) PieceFile::mark(units, u);
                }
            }
            asked.push_back({last, source.begin(base, units, result.reads)});
            next = last;
        }
        if (asked.empty()) break;
        const Asked region = std::move(asked.front());
        asked.pop_front();
        const auto failure = source.wait(region.read);
        if (failure) {
            result.failure = DistributeFailure{failure->code, false, failure->offset};
            break;
        }
        if (stop) throw std::runtime_error("distributing was stopped");
        if (writers.failed()) break;
        for (std::size_t c = 0; c < chunks.size(); ++c) {
            State& state = states[c];
            while (state.cursor < chunks[c].end && ids[state.cursor] < region.last) {
                const std::byte* row = region.read.memory + (row_at(ids[state.cursor++]) - region.read.base);
                for (std::uint64_t done = 0; done < table.row_bytes;) {
                    if (state.buffer == nullptr) state.buffer = writers.take();
                    const std::uint64_t part = std::min(table.row_bytes - done, state.room - state.fill);
                    std::memcpy(state.buffer + state.fill, row + done, part);
                    done += part;
                    state.fill += part;
                    if (state.fill == state.room) flush(state, state.fill);
                }
                if (state.cursor == chunks[c].end && state.fill > 0) {
                    const std::uint64_t bytes = padded(state.fill);
                    std::memset(state.buffer + state.fill, 0, bytes - state.fill);
                    flush(state, bytes);
                }
            }
        }
        source.give_back(region.read);
    }
    const auto failure = writers.finish();
    if (!result.failure) result.failure = failure;
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        const bool empty = chunks[c].begin == chunks[c].end;
        result.digests.push_back(empty || result.failure ? 0 : states[c].digest.value());
    }
    return result;
}

}  // namespace outcore
