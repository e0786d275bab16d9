// The parallel row copy, and a guard that turns SIGBUS on a mapped file into an error of this call.
#include "read/gather.hpp"

#include <setjmp.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

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
[[gnu::noinline]] void copy_rows(const Table& table, std::span<const i64> rows, std::span<const u32> order,
                                 std::byte* out, size_t begin, size_t end) {
    if (!order.empty()) {
        for (size_t at = begin; at < end; ++at) {
            const size_t i = order[at];
            std::memcpy(out + i * table.row_bytes, table.data + static_cast<u64>(rows[i]) * table.row_bytes,
                        table.row_bytes);
        }
        return;
    }
    for (size_t i = begin; i < end; ++i) {
        if (i + ahead < end) {
            const std::byte* soon = table.data + static_cast<u64>(rows[i + ahead]) * table.row_bytes;
            __builtin_prefetch(soon);
            if (table.row_bytes > 64) __builtin_prefetch(soon + 64);
        }
        std::memcpy(out + i * table.row_bytes, table.data + static_cast<u64>(rows[i]) * table.row_bytes,
                    table.row_bytes);
    }
}

[[gnu::noinline]] bool copy_guarded(const Table& table, std::span<const i64> rows, std::span<const u32> order,
                                    std::byte* out, size_t begin, size_t end) {
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

i64 gather(const Table& table, std::span<const i64> rows, std::byte* out, unsigned threads, bool in_order) {
    for (const auto row : rows) {
        if (static_cast<u64>(row) >= table.num_rows) {
            throw std::out_of_range("row " + std::to_string(row) + " of a table of " + std::to_string(table.num_rows) +
                                    " rows");
        }
    }
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
        if (!copy_guarded(table, rows, order, out, begin, end)) fault.store(guard.fault - table.data);
    });
    return fault.load();
}

}  // namespace outcore
