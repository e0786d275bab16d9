// Opens a file for direct reads and finds its device's logical block size: statx, then sysfs, then 4096.
#include "direct_file.hpp"

#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <fstream>
#include <system_error>

namespace outcore {
namespace {

// sysfs keeps the queue of a partition under its parent disk.
std::uint32_t sysfs_block_bytes(dev_t device) {
    const std::string base = "/sys/dev/block/" + std::to_string(major(device)) + ":" + std::to_string(minor(device));
    for (const char* tail : {"/queue/logical_block_size", "/../queue/logical_block_size"}) {
        std::ifstream file(base + tail);
        std::uint32_t value = 0;
        if (file >> value && std::has_single_bit(value)) return value;
    }
    return 0;
}

}  // namespace

DirectFile::DirectFile(const std::string& path) {
    fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd_ < 0 && errno == EINVAL) {
        fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        direct_ = false;
        note_ = "buffered: no O_DIRECT on this file system";
    }
    if (fd_ < 0) throw std::system_error(errno, std::generic_category(), path);
    struct stat info {};
    if (fstat(fd_, &info) != 0) {
        const int code = errno;
        close(fd_);
        throw std::system_error(code, std::generic_category(), path);
    }
    size_ = static_cast<std::uint64_t>(S_ISBLK(info.st_mode) ? lseek(fd_, 0, SEEK_END) : info.st_size);
    const dev_t device = S_ISBLK(info.st_mode) ? info.st_rdev : info.st_dev;
    std::uint32_t offset_alignment = 0;
    std::uint32_t memory_alignment = 0;
#ifdef STATX_DIOALIGN
    struct statx more {};
    if (syscall(SYS_statx, fd_, "", AT_EMPTY_PATH, STATX_DIOALIGN, &more) == 0 && (more.stx_mask & STATX_DIOALIGN)) {
        offset_alignment = more.stx_dio_offset_align;
        memory_alignment = more.stx_dio_mem_align;
    }
#endif
    if (offset_alignment == 0) offset_alignment = sysfs_block_bytes(device);
    if (offset_alignment == 0 || !std::has_single_bit(offset_alignment)) offset_alignment = 4096;
    block_bytes_ = offset_alignment < 512 ? 512 : offset_alignment;
    memory_alignment_ = memory_alignment != 0 && std::has_single_bit(memory_alignment) ? memory_alignment : block_bytes_;
}

DirectFile::~DirectFile() {
    if (fd_ >= 0) close(fd_);
}

}  // namespace outcore
