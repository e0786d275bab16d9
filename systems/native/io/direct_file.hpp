// Files opened for direct reads and writes, with the alignment that the device requires.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>

#include "base/types.hpp"

namespace outcore {

constexpr u64 page_bytes = 4096;  // every device reads and writes whole pages at page boundaries

constexpr u64 padded(u64 bytes) { return up_to(bytes, page_bytes); }

// An open file, closed at the end.
class FileHandle {
public:
    // Opens the file; flags with O_DIRECT: without it where the file system has none (tmpfs). Throws std::system_error.
    FileHandle(const std::string& path, int flags);
    FileHandle(const FileHandle&) = delete;
    FileHandle& operator=(const FileHandle&) = delete;
    ~FileHandle() { close(fd_); }

    int fd() const { return fd_; }
    bool direct() const { return direct_; }

private:
    bool direct_;
    int fd_;
};

// Reads a file that lies on any device.
class DirectFile {
public:
    // Opens with O_DIRECT, or buffered with a `note` where the file system has none. Throws std::system_error.
    explicit DirectFile(const std::string& path);

    int fd() const { return file_.fd(); }
    bool direct() const { return file_.direct(); }
    u64 size() const { return size_; }                          // in bytes, when it was opened
    u32 block_bytes() const { return block_bytes_; }            // unit of the offsets and lengths of direct reads
    u32 memory_alignment() const { return memory_alignment_; }  // of a direct read's destination
    std::string note() const { return direct() ? "" : "buffered: no O_DIRECT on this file system"; }

private:
    FileHandle file_;
    u64 size_ = 0;
    u32 block_bytes_ = 4096;
    u32 memory_alignment_ = 4096;
};

}  // namespace outcore
