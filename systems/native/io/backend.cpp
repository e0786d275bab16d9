// The choice between io_uring and the pread pool.
#include "io/backend.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <stdexcept>
#include <system_error>

#include "io/pread_pool.hpp"
#include "io/ring.hpp"

namespace outcore {
namespace {

#ifdef OUTCORE_HAS_LIBURING
std::string memlock_limit() {
    rlimit limit{};
    getrlimit(RLIMIT_MEMLOCK, &limit);
    return limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur >> 10) + " KiB";
}

OpenedBackend open_ring(int fd, u32 depth, const AlignedMemory* bounce) {
    auto ring = std::make_unique<Ring>(depth, fd);
    if (bounce == nullptr) return {std::move(ring), "io_uring"};
    const int code = ring->register_bounce(bounce->data(), bounce->size());
    if (code == 0) return {std::move(ring), "io_uring registered", true};
    const std::string reason =
        code == ENOMEM ? "memlock limit " + memlock_limit() : std::generic_category().message(code);
    return {std::move(ring), "io_uring unregistered (" + reason + ")"};
}
#else
OpenedBackend open_ring(int, u32, const AlignedMemory*) { throw std::runtime_error("built without liburing"); }
#endif

}  // namespace

OpenedBackend open_backend(const IoChoice& choice, int fd, u32 depth, u32 threads, const AlignedMemory* bounce) {
    std::string reason = "asked for";
    if (choice.want_ring) {
        try {
            return open_ring(fd, depth, bounce);
        } catch (const std::runtime_error& error) {  // std::system_error is one
            reason = error.what();
        }
    }
    if (choice.need_ring) throw std::runtime_error(reason);
    return {std::make_unique<PreadPool>(std::min(threads, depth), depth, fd), "pread pool (" + reason + ")"};
}

}  // namespace outcore
