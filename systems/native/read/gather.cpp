// The parallel row copy, and a guard that turns SIGBUS on a mapped file into an error of this call.
#include "read/gather.hpp"

#include <setjmp.h>
#include <signal.h>

#include <cstring>
#include <numeric>

#include "base/refuse.hpp"
#include "base/team.hpp"

namespace outcore {
namespace {

struct Guard {
    sigjmp_buf* back = nullptr;  // target of the jump after a fault inside [begin, end)
    const std::byte* begin = nullptr;
    const std::byte* end = nullptr;
    const std::byte* fault = nullptr;
};
// Plain data touched by its own thread and by a signal raised in that thread.
thread_local Guard guard;
struct sigaction previous_action;

void on_bus_error(int number, siginfo_t* info, void* context) {
    const auto* at = static_cast<const std::byte*>(info->si_addr);
    if (guard.back != nullptr && at >= guard.begin && at < guard.end) {
        guard.fault = at;
        siglongjmp(*guard.back, 1);
    }
    // A fault outside the table: leave it to the previous handler.
    if ((previous_action.sa_flags & SA_SIGINFO) != 0 && previous_action.sa_sigaction != nullptr) {
        previous_action.sa_sigaction(number, info, context);
    } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
        previous_action.sa_handler(number);
    } else {
        signal(number, SIG_DFL);
        raise(number);
    }
}

void install_guard() {
    static std::once_flag once;
    std::call_once(once, [] {
        struct sigaction action{};
        action.sa_sigaction = on_bus_error;
        // NODEFER: the handler is left by a jump, which must not leave the signal blocked.
        action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
        sigaction(SIGBUS, &action, &previous_action);
    });
}

constexpr size_t ahead = 4;  // rows whose first lines are prefetched; a prefetch never faults

// Out of line, like its caller: a value that lives across the jump must not be in a register.
[[gnu::noinline]] void copy_rows(const Table& table, Ids rows, std::span<const u32> order, std::byte* out, size_t begin,
                                 size_t end) {
    if (!order.empty()) {
        for (const u32 i : order.subspan(begin, end - begin))
            std::memcpy(out + i * table.row_bytes, table.row(static_cast<u64>(rows[i])), table.row_bytes);
        return;
    }
    for (size_t i = begin; i < end; ++i) {
        if (i + ahead < end) {
            const std::byte* soon = table.row(static_cast<u64>(rows[i + ahead]));
            __builtin_prefetch(soon);
            if (table.row_bytes > 64) __builtin_prefetch(soon + 64);
        }
        std::memcpy(out + i * table.row_bytes, table.row(static_cast<u64>(rows[i])), table.row_bytes);
    }
}

[[gnu::noinline]] bool copy_guarded(const Table& table, Ids rows, std::span<const u32> order, std::byte* out,
                                    size_t begin, size_t end) {
    sigjmp_buf back;
    if (sigsetjmp(back, 0) != 0) {
        guard.back = nullptr;
        return false;
    }
    guard.begin = table.data;
    guard.end = table.data + table.num_rows * table.row_bytes;
    guard.back = &back;
    copy_rows(table, rows, order, out, begin, end);
    guard.back = nullptr;
    return true;
}

}  // namespace

i64 gather(Table table, Ids rows, OutTable out, unsigned threads, bool in_order) {
    if (out.row_bytes != table.row_bytes) throw std::invalid_argument("out's rows have another size than the table's");
    if (out.num_rows < rows.size()) throw std::out_of_range("out has fewer rows than asked for");
    for (const i64 row : rows) checked_row(row, table.num_rows);
    install_guard();
    std::vector<u32> order;
    if (in_order && rows.size() <= UINT32_MAX) {
        order.resize(rows.size());
        std::iota(order.begin(), order.end(), 0U);
        std::sort(order.begin(), order.end(), [&](u32 a, u32 b) { return rows[a] < rows[b]; });
    }
    std::atomic<i64> fault{-1};
    // Small chunks: a thread that waits for a page must not hold many rows that others could fetch.
    const size_t chunk = std::clamp<size_t>(rows.size() / (std::max(threads, 1U) * 16ULL), 1, 64);
    parallel(rows.size(), chunk, threads, [&](size_t begin, size_t end, int) {
        if (fault.load(std::memory_order_relaxed) >= 0) return;
        if (!copy_guarded(table, rows, order, out.data, begin, end)) fault.store(guard.fault - table.data);
    });
    return fault.load();
}

void scatter(Table source, std::span<const i32> from, OutTable target, std::span<const i32> to, unsigned threads) {
    const size_t row_bytes = source.row_bytes;
    if (row_bytes != target.row_bytes) throw std::invalid_argument("the tables have rows of different sizes");
    if (from.size() != to.size()) throw std::invalid_argument("there are not as many places as rows to copy");
    const size_t chunk = std::max<size_t>(16, (size_t{128} << 10) / std::max<size_t>(row_bytes, 1));
    parallel(from.size(), chunk, threads, [&](size_t begin, size_t end, int) {
        for (size_t i = begin; i < end; ++i) {
            const u64 row = static_cast<u32>(from[i]), place = static_cast<u32>(to[i]);
            if (row >= source.num_rows || place >= target.num_rows)
                throw std::out_of_range("a row that the table does not have");
            if (i + ahead < end) {
                const u64 soon = static_cast<u32>(from[i + ahead]);
                if (soon < source.num_rows) __builtin_prefetch(source.row(soon));
            }
            std::memcpy(target.row(place), source.row(row), row_bytes);
        }
    });
}

std::pair<size_t, std::vector<i64>> split_rows(Table source, std::span<const i32> to, size_t begin, i32 on_device,
                                               OutTable host, OutTable staging) {
    const size_t row_bytes = source.row_bytes;
    if (row_bytes != host.row_bytes || row_bytes != staging.row_bytes)
        throw std::invalid_argument("the tables have rows of different sizes");
    if (to.size() > source.num_rows) throw std::out_of_range("there are more places than rows");
    std::vector<i64> staged;
    staged.reserve(staging.num_rows);
    for (size_t i = begin; i < to.size(); ++i) {
        const auto place = static_cast<size_t>(to[i] - on_device);
        if (to[i] < 0 || (to[i] >= on_device && place >= host.num_rows))
            refuse<std::out_of_range>("row ", to[i], " of a split table");
        if (to[i] < on_device) {
            if (staged.size() == staging.num_rows) return {i, std::move(staged)};
            std::memcpy(staging.row(staged.size()), source.row(i), row_bytes);
            staged.push_back(to[i]);
        } else {
            std::memcpy(host.row(place), source.row(i), row_bytes);
        }
    }
    return {to.size(), std::move(staged)};
}

}  // namespace outcore
