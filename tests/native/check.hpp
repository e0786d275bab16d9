// Tools of the native tests: a check that prints the place of a failure, and a temporary file with known bytes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            std::cerr << __FILE__ << ":" << __LINE__ << ": " << #condition << std::endl; \
            std::exit(1);                                                                \
        }                                                                                \
    } while (false)

// Compares as memory; `==` would compare byte by byte, each access instrumented.
inline bool equal_bytes(const std::vector<std::byte>& one, const std::vector<std::byte>& other) {
    return one.size() == other.size() && (one.empty() || std::memcmp(one.data(), other.data(), one.size()) == 0);
}

// A file of random bytes in the folder given by OUTCORE_TEST_DIR (or /var/tmp), removed at the end.
class TestFile {
public:
    explicit TestFile(std::size_t size, unsigned seed = 1) : bytes(size) {
        std::mt19937_64 random(seed);
        // Eight bytes a draw: ThreadSanitizer makes each access many times as slow.
        for (std::size_t at = 0; at < size; at += 8) {
            const std::uint64_t drawn = random();
            std::memcpy(bytes.data() + at, &drawn, std::min(size - at, std::size_t{8}));
        }
        const char* folder = std::getenv("OUTCORE_TEST_DIR");
        path = std::string(folder != nullptr ? folder : "/var/tmp") + "/outcore-native-XXXXXX";
        const int fd = mkstemp(path.data());
        CHECK(fd >= 0);
        CHECK(write(fd, bytes.data(), size) == static_cast<ssize_t>(size));
        CHECK(fsync(fd) == 0);
        close(fd);
    }
    TestFile(const TestFile&) = delete;
    TestFile& operator=(const TestFile&) = delete;
    ~TestFile() { std::filesystem::remove(path); }

    std::string path;
    std::vector<std::byte> bytes;
};
