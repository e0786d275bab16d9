// Page cache of a file: bytes held, eviction, and madvise of mapped memory; with the bindings.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/arrays.hpp"
#include "io/direct_file.hpp"

namespace outcore {
namespace {

// The number is the same on every architecture; Debian 12's headers are older than the call (Linux 6.5).
constexpr long cachestat_number = 451;
struct CacheRange {
    u64 offset, length;
};
struct CacheCounts {
    u64 cached, dirty, writeback, evicted, recently_evicted;
};

[[noreturn]] void fail(const std::string& path) { throw std::system_error(errno, std::generic_category(), path); }

u64 resident_by_mincore(int fd, const std::string& path) {
    struct stat info{};
    if (fstat(fd, &info) != 0) fail(path);
    const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    constexpr size_t piece = size_t{1} << 30;
    const auto size = static_cast<size_t>(info.st_size);
    std::vector<unsigned char> pages(piece / page);
    u64 resident = 0;
    for (size_t at = 0; at < size; at += piece) {
        const size_t length = std::min(piece, size - at);
        void* data = mmap(nullptr, length, PROT_READ, MAP_SHARED, fd, static_cast<off_t>(at));
        if (data == MAP_FAILED) fail(path);
        const int code = mincore(data, length, pages.data());
        munmap(data, length);
        if (code != 0) fail(path);
        const auto last = pages.begin() + static_cast<std::ptrdiff_t>((length + page - 1) / page);
        resident += page * static_cast<u64>(std::count_if(pages.begin(), last, [](auto in) { return (in & 1) != 0; }));
    }
    return resident;
}

// Returns the bytes of the file in the page cache: cachestat(2), else mincore(2). Throws std::system_error.
u64 resident(const FileHandle& file, const std::string& path) {
    CacheRange all{0, 0};  // length 0: to the end
    CacheCounts counts{};
    if (syscall(cachestat_number, file.fd(), &all, &counts, 0) == 0)
        return counts.cached * static_cast<u64>(sysconf(_SC_PAGESIZE));
    return resident_by_mincore(file.fd(), path);
}

// Writes dirty pages out and drops the file's clean ones; returns the bytes still resident (pages that a process has
// mapped cannot be dropped). Throws std::system_error.
u64 evict(const std::string& path) {
    const FileHandle file(path, O_RDONLY);
    if (fsync(file.fd()) != 0 && errno != EINVAL && errno != EROFS) fail(path);
    // The first call sometimes misses pages in per-CPU batches.
    for (int attempt = 0; attempt < 3; ++attempt) {
        const int code = posix_fadvise(file.fd(), 0, 0, POSIX_FADV_DONTNEED);
        if (code != 0) throw std::system_error(code, std::generic_category(), path);
        if (resident(file, path) == 0) return 0;
    }
    return resident(file, path);
}

// Calls madvise on every page that overlaps [data, data + bytes). Throws std::system_error.
void advise(const void* data, size_t bytes, int advice) {
    const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
    const auto before = reinterpret_cast<std::uintptr_t>(data) % page;  // bytes since the page's start
    auto* begin = static_cast<std::byte*>(const_cast<void*>(data)) - before;
    if (madvise(begin, before + bytes, advice) != 0) fail("madvise");
}

}  // namespace

void bind_page_cache(nb::module_& m) {
    m.def(
        "resident_bytes",
        [](const std::string& path) {
            return with_path(path, [&] { return resident(FileHandle(path, O_RDONLY), path); });
        },
        "path"_a, released());
    m.def(
        "evict", [](const std::string& path) { return with_path(path, [&] { return evict(path); }); }, "path"_a,
        released());
    m.def(
        "advise",
        [](std::span<const u8> data, int advice) {
            with_path("madvise", [&] { advise(data.data(), data.size(), advice); });
        },
        "data"_a.noconvert(), "advice"_a, released());
}

}  // namespace outcore
