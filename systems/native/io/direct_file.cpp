// Opens a file for direct reads and finds its device's logical block size: statx, then sysfs, then 4096.
#include "io/direct_file.hpp"

#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <fstream>
#include <system_error>
#include <utility>

namespace outcore {
namespace {

// sysfs keeps the queue of a partition under its parent disk.
u32 sysfs_block_bytes(dev_t device) {
    const std::string base = "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
    for (const char* tail : {"/queue/logical_block_size", "/../queue/logical_block_size"}) {
        std::ifstream file(base + tail);
        u32 value = 0;
        if (file >> value && std::has_single_bit(value)) return value;
    }
    return 0;
}

}  // namespace

FileHandle::FileHandle(const std::string& path, int flags)
    : direct_((flags & O_DIRECT) != 0), fd_(open(path.c_str(), flags | O_CLOEXEC)) {
    if (fd_ < 0 && errno == EINVAL && std::exchange(direct_, false))
        fd_ = open(path.c_str(), (flags & ~O_DIRECT) | O_CLOEXEC);
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), path);
}

DirectFile::DirectFile(const std::string& path) : file_(path, O_RDONLY | O_DIRECT) {
    struct stat info{};
    if (fstat(fd(), &info) != 0) throw std::system_error(errno, std::generic_category(), path);
    size_ = static_cast<u64>(S_ISBLK(info.st_mode) ? lseek(fd(), 0, SEEK_END) : info.st_size);
    const dev_t device = S_ISBLK(info.st_mode) ? info.st_rdev : info.st_dev;
    u32 offset_alignment = 0, memory_alignment = 0;
#ifdef STATX_DIOALIGN
    struct statx more{};
    if (syscall(SYS_statx, fd(), "", AT_EMPTY_PATH, STATX_DIOALIGN, &more) == 0 && (more.stx_mask & STATX_DIOALIGN)) {
        offset_alignment = more.stx_dio_offset_align;
        memory_alignment = more.stx_dio_mem_align;
    }
#endif
    if (offset_alignment == 0) offset_alignment = sysfs_block_bytes(device);
    block_bytes_ = std::has_single_bit(offset_alignment) ? std::max(512U, offset_alignment) : 4096;
    memory_alignment_ = std::has_single_bit(memory_alignment) ? memory_alignment : block_bytes_;
}

}  // namespace outcore
