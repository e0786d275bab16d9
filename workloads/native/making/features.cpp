// The vector loop behind feature rows.
#include "making/features.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "base/philox.hpp"
#include "base/philox_lanes.hpp"
#include "base/team.hpp"

namespace outcore {

namespace {

constexpr int kLanes = 16;
constexpr int kGroup = 4 * kLanes;  // columns of one vector call; column d takes word (d % 64) / 16 of lane d % 16

// One draw as a number that is about normal: the sum of its four bytes (variance 4 * (256^2 - 1) / 12), made
// fine-grained by a fraction scrambled out of the same bits, so that rows hardly ever share a value.
OUTCORE_INLINE float about_normal(u32 draw) noexcept {
    const u32 pairs = (draw & 0x00FF00FFU) + ((draw >> 8) & 0x00FF00FFU);
    const i32 sum = static_cast<i32>((pairs & 0xFFFFU) + (pairs >> 16));
    const auto fraction = static_cast<i32>((draw * 0x9E3779B1U) >> 8);
    return (static_cast<float>(sum) + static_cast<float>(fraction) * 0x1p-24F - 510.5F) * (1.0F / 147.8012F);
}

// Round to nearest, ties to even; infinity past the largest float16. Integer arithmetic alone, so that it vectorises
// where the processor has no conversion.
OUTCORE_INLINE u16 to_half(float value) noexcept {
    const auto bits = std::bit_cast<u32>(value);
    const u32 sign = (bits >> 16) & 0x8000U, magnitude = bits & 0x7FFFFFFFU;
    const u32 normal = (magnitude - 0x38000000U + 0xFFFU + ((magnitude >> 13) & 1U)) >> 13;
    // Below 2^-14: adding 1/2 moves the bits that float16 keeps to the end of the significand, rounded.
    const u32 small = std::bit_cast<u32>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3F000000U;
    u32 half = magnitude < 0x38800000U ? small : normal;
    half = magnitude >= 0x477FF000U ? 0x7C00U : half;
    return static_cast<u16>(half | sign);
}

OUTCORE_INLINE void store(float value, float* out) noexcept { *out = value; }
OUTCORE_INLINE void store(float value, u16* out) noexcept { *out = to_half(value); }

template <typename Element>
OUTCORE_INLINE void one_row(const float* centre, u64 id, i64 dim, u64 seed, float noise, Element* out) noexcept {
    alignas(64) float z[kGroup];
    for (i64 first = 0; first < dim; first += kGroup) {
        Lanes<kLanes> lanes;
        OUTCORE_LANES
        for (int l = 0; l < kLanes; ++l) {
            lanes.word0[l] = static_cast<u32>(id);
            lanes.word1[l] = static_cast<u32>(id >> 32);
            lanes.word2[l] = static_cast<u32>(first / 4) + static_cast<u32>(l);
            lanes.word3[l] = static_cast<u32>(Purpose::kFeature);
        }
        philox_lanes(lanes, seed);
        OUTCORE_LANES
        for (int l = 0; l < kLanes; ++l) z[l] = about_normal(lanes.word0[l]);
        OUTCORE_LANES
        for (int l = 0; l < kLanes; ++l) z[kLanes + l] = about_normal(lanes.word1[l]);
        OUTCORE_LANES
        for (int l = 0; l < kLanes; ++l) z[2 * kLanes + l] = about_normal(lanes.word2[l]);
        OUTCORE_LANES
        for (int l = 0; l < kLanes; ++l) z[3 * kLanes + l] = about_normal(lanes.word3[l]);
        if (dim - first >= kGroup) {
            for (int k = 0; k < kGroup; ++k) store(centre[first + k] + noise * z[k], out + first + k);
        } else {
            for (i64 k = 0; k < dim - first; ++k) store(centre[first + k] + noise * z[k], out + first + k);
        }
    }
}

template <typename Element>
OUTCORE_INLINE void some_rows(const float* centres, const i64* group, const i64* ids, i64 begin, i64 end, i64 dim,
                              u64 seed, float noise, Element* out) noexcept {
    for (i64 r = begin; r < end; ++r) {
        one_row(centres + group[r] * dim, static_cast<u64>(ids[r]), dim, seed, noise, out + r * dim);
    }
}

OUTCORE_CLONES void rows_of(const float* centres, const i64* group, const i64* ids, i64 begin, i64 end, i64 dim,
                            u64 seed, float noise, float* out) {
    some_rows(centres, group, ids, begin, end, dim, seed, noise, out);
}

OUTCORE_CLONES void rows_of(const float* centres, const i64* group, const i64* ids, i64 begin, i64 end, i64 dim,
                            u64 seed, float noise, u16* out) {
    some_rows(centres, group, ids, begin, end, dim, seed, noise, out);
}

template <typename Element>
void all_rows(std::span<const float> centres, std::span<const i64> group, std::span<const i64> ids, i64 dim, u64 seed,
              float noise, int threads, Element* out) {
    if (dim < 1 || group.size() != ids.size()) throw std::invalid_argument("one group for each id, dim at least 1");
    const auto groups = static_cast<i64>(centres.size()) / dim;
    for (const i64 g : group) {
        if (g < 0 || g >= groups) throw std::out_of_range("a node's group has no centre");
    }
    const i64 piece = std::max<i64>(1, (1 << 16) / dim);
    parallel(static_cast<i64>(ids.size()), piece, threads, [&](i64 begin, i64 end, int) {
        rows_of(centres.data(), group.data(), ids.data(), begin, end, dim, seed, noise, out);
    });
}

}  // namespace

void feature_rows(std::span<const float> centres, std::span<const i64> group, std::span<const i64> ids, i64 dim,
                  u64 seed, float noise, int threads, float* out) {
    all_rows(centres, group, ids, dim, seed, noise, threads, out);
}

void feature_rows(std::span<const float> centres, std::span<const i64> group, std::span<const i64> ids, i64 dim,
                  u64 seed, float noise, int threads, u16* out) {
    all_rows(centres, group, ids, dim, seed, noise, threads, out);
}

void random_labels(i64 first, u32 num_classes, u64 seed, std::span<i64> out) {
    const Philox4x32 philox(seed);
    for (size_t k = 0; k < out.size(); ++k) {
        const auto id = static_cast<u64>(first) + k;
        PhiloxStream stream(philox,
                            {0, static_cast<u32>(id), static_cast<u32>(id >> 32), static_cast<u32>(Purpose::kLabel)});
        out[k] = stream.below(num_classes);
    }
}

}  // namespace outcore
