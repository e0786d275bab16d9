// File opened for direct reads, with the alignment that its device requires.
#pragma once

#include <cstdint>
#include <string>

namespace outcore {

class DirectFile {
public:
    // Opens with O_DIRECT, or buffered with a `note` where the file system has none (tmpfs). Throws std::system_error.
    explicit DirectFile(const std::string& path);
    DirectFile(const DirectFile&) = delete;
    DirectFile& operator=(const DirectFile&) = delete;
    ~DirectFile();

    int fd() const { return fd_; }
    bool direct() const { return direct_; }
    std::uint64_t size() const { return size_; }               // in bytes, when it was opened
    std::uint32_t block_bytes() const { return block_bytes_; }  // unit of the offsets and lengths of direct reads
    std::uint32_t memory_alignment() const { return memory_alignment_; }  // of a direct read's destination
    const std::string& note() const { return note_; }

private:
    int fd_ = -1;
    bool direct_ = true;
    std::uint64_t size_ = 0;
    std::uint32_t block_bytes_ = 4096;
    std::uint32_t memory_alignment_ = 4096;
    std::string note_;
};

}  // namespace outcore
