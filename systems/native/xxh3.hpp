// Streamed XXH3-64 of data whose length is a multiple of 1 KiB and known beforehand; keeps eight accumulators and no
// data. The values are those of `xxhsum -H3`; the constants are the algorithm's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace outcore {

class Xxh3Stream {
public:
    static constexpr std::size_t block_bytes = 1024;

    // total_bytes: bytes of all updates together, a positive multiple of block_bytes.
    explicit Xxh3Stream(std::uint64_t total_bytes = block_bytes) : total_(total_bytes), left_(total_bytes) {}

    // `bytes` is a multiple of block_bytes.
    void update(const std::byte* data, std::size_t bytes) {
        for (std::size_t at = 0; at < bytes; at += block_bytes) {
            const std::byte* block = data + at;
            left_ -= block_bytes;
            if (left_ > 0) {
                for (std::size_t i = 0; i < stripes; ++i) accumulate(block + i * stripe_bytes, secret.data() + i * 8);
                scramble(secret.data() + secret.size() - stripe_bytes);
            } else {  // the last stripe of the last block has a key of its own
                for (std::size_t i = 0; i + 1 < stripes; ++i) accumulate(block + i * stripe_bytes, secret.data() + i * 8);
                accumulate(block + block_bytes - stripe_bytes, secret.data() + secret.size() - stripe_bytes - 7);
            }
        }
    }

    std::uint64_t value() const {
        std::uint64_t result = total_ * prime64[1];
        for (std::size_t i = 0; i < 4; ++i) {
            const std::uint8_t* key = secret.data() + 11 + 16 * i;
            result += folded(lanes_[2 * i] ^ word(key), lanes_[2 * i + 1] ^ word(key + 8));
        }
        result ^= result >> 37;
        result *= 0x165667919E3779F9ULL;
        return result ^ (result >> 32);
    }

private:
    static constexpr std::size_t stripe_bytes = 64;
    static constexpr std::size_t stripes = block_bytes / stripe_bytes;
    static constexpr std::array<std::uint32_t, 4> prime32{0, 0x9E3779B1U, 0x85EBCA77U, 0xC2B2AE3DU};
    static constexpr std::array<std::uint64_t, 6> prime64{0,
                                                          0x9E3779B185EBCA87ULL,
                                                          0xC2B2AE3D27D4EB4FULL,
                                                          0x165667B19E3779F9ULL,
                                                          0x85EBCA77C2B2AE63ULL,
                                                          0x27D4EB2F165667C5ULL};
    static constexpr std::array<std::uint8_t, 192> secret{
        0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c, 0xde, 0xd4, 0x6d, 0xe9,
        0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f, 0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78,
        0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21, 0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6,
        0x81, 0x3a, 0x26, 0x4c, 0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
        0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8, 0xa8, 0xfa, 0x76, 0x3f,
        0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d, 0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31,
        0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64, 0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff,
        0xfa, 0x13, 0x63, 0xeb, 0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
        0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce, 0x45, 0xcb, 0x3a, 0x8f,
        0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e};

    template <class T>
    static std::uint64_t word(const T* at) {
        std::uint64_t value;
        std::memcpy(&value, at, sizeof(value));
        return value;
    }

    static std::uint64_t folded(std::uint64_t a, std::uint64_t b) {
        const std::uint64_t low = (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF);
        const std::uint64_t cross1 = (a >> 32) * (b & 0xFFFFFFFF);
        const std::uint64_t cross2 = (a & 0xFFFFFFFF) * (b >> 32);
        const std::uint64_t middle = (low >> 32) + (cross1 & 0xFFFFFFFF) + cross2;
        const std::uint64_t high = (a >> 32) * (b >> 32) + (cross1 >> 32) + (middle >> 32);
        return ((middle << 32) | (low & 0xFFFFFFFF)) ^ high;
    }

    void accumulate(const std::byte* stripe, const std::uint8_t* key) {
        for (std::size_t i = 0; i < 8; ++i) {
            const std::uint64_t value = word(stripe + 8 * i);
            const std::uint64_t mixed = value ^ word(key + 8 * i);
            lanes_[i ^ 1] += value;
            lanes_[i] += (mixed & 0xFFFFFFFF) * (mixed >> 32);
        }
    }

    void scramble(const std::uint8_t* key) {
        for (std::size_t i = 0; i < 8; ++i) {
            lanes_[i] = (lanes_[i] ^ (lanes_[i] >> 47) ^ word(key + 8 * i)) * prime32[1];
        }
    }

    std::uint64_t total_;
    std::uint64_t left_;
    std::array<std::uint64_t, 8> lanes_{prime32[3], prime64[1], prime64[2], prime64[3],
                                        prime64[4], prime32[2], prime64[5], prime32[1]};
};

}  // namespace outcore
