// Feature rows by counter: row = centre of the node's group + noise, every number a pure function of (seed, node id,
// column), so that any row can be made again alone.
#include <algorithm>
#include <bit>
#include <stdexcept>

#include "base/arrays.hpp"
#include "base/philox.hpp"
#include "base/team.hpp"

namespace outcore {
namespace {

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

struct Rows {
    const float* centres;
    const i64 *group, *ids;
    i64 dim;
    u64 seed;
    float noise;
};

template <typename Element>
OUTCORE_INLINE void make_rows(const Rows& rows, i64 begin, i64 end, Element* out) noexcept {
    alignas(64) float z[kGroup];
    const i64 dim = rows.dim;
    const float noise = rows.noise;
    for (i64 r = begin; r < end; ++r) {
        const float* centre = rows.centres + rows.group[r] * dim;
        const auto id = static_cast<u64>(rows.ids[r]);
        Element* row = out + r * dim;
        for (i64 first = 0; first < dim; first += kGroup) {
            Lanes<kLanes> lanes;
            OUTCORE_LANES
            for (int l = 0; l < kLanes; ++l) {
                lanes.word0[l] = static_cast<u32>(id);
                lanes.word1[l] = static_cast<u32>(id >> 32);
                lanes.word2[l] = static_cast<u32>(first / 4) + static_cast<u32>(l);
                lanes.word3[l] = static_cast<u32>(Purpose::kFeature);
            }
            philox_lanes(lanes, rows.seed);
            OUTCORE_LANES
            for (int l = 0; l < kLanes; ++l) z[l] = about_normal(lanes.word0[l]);
            OUTCORE_LANES
            for (int l = 0; l < kLanes; ++l) z[kLanes + l] = about_normal(lanes.word1[l]);
            OUTCORE_LANES
            for (int l = 0; l < kLanes; ++l) z[2 * kLanes + l] = about_normal(lanes.word2[l]);
            OUTCORE_LANES
            for (int l = 0; l < kLanes; ++l) z[3 * kLanes + l] = about_normal(lanes.word3[l]);
            if (dim - first >= kGroup) {
                for (int k = 0; k < kGroup; ++k) store(centre[first + k] + noise * z[k], row + first + k);
            } else {
                for (i64 k = 0; k < dim - first; ++k) store(centre[first + k] + noise * z[k], row + first + k);
            }
        }
    }
}

OUTCORE_CLONES void rows_of(const Rows& rows, i64 begin, i64 end, float* out) { make_rows(rows, begin, end, out); }
OUTCORE_CLONES void rows_of(const Rows& rows, i64 begin, i64 end, u16* out) { make_rows(rows, begin, end, out); }

// out[r, d] = centres[group[r], d] + noise * z(seed, ids[r], d), z about normal with mean 0 and variance 1; float32, or
// float16 as its bit pattern.
template <typename Element>
void feature_rows(RowsOf<const float> centres, Ids group, Ids ids, u64 seed, float noise, int threads,
                  RowsOf<Element> out) {
    const auto dim = static_cast<i64>(centres.row_bytes);
    if (out.num_rows != ids.size() || out.row_bytes != centres.row_bytes)
        throw std::invalid_argument("out does not fit ids and centres");
    if (dim < 1 || group.size() != ids.size()) throw std::invalid_argument("one group for each id, dim at least 1");
    for (const i64 g : group)
        if (static_cast<u64>(g) >= centres.num_rows) throw std::out_of_range("a node's group has no centre");
    const Rows rows{centres.data, group.data(), ids.data(), dim, seed, noise};
    parallel(static_cast<i64>(ids.size()), std::max<i64>(1, (1 << 16) / dim), threads,
             [&](i64 begin, i64 end, int) { rows_of(rows, begin, end, out.data); });
}

// A class in [0, num_classes) for each of nodes [first, first + out.size()), by counter.
void random_labels(i64 first, u32 num_classes, u64 seed, std::span<i64> out) {
    if (num_classes < 1) throw std::invalid_argument("num_classes must be at least 1");
    const Philox4x32 philox(seed);
    for (i64& label : out) {
        const auto id = static_cast<u64>(first++);
        PhiloxStream stream(philox,
                            {0, static_cast<u32>(id), static_cast<u32>(id >> 32), static_cast<u32>(Purpose::kLabel)});
        label = stream.below(num_classes);
    }
}

}  // namespace

void bind_features(nb::module_& m) {
    m.def("feature_rows32", &feature_rows<float>, "centres"_a, "group"_a, "ids"_a, "seed"_a, "noise"_a, "threads"_a,
          "out"_a, released());
    m.def("feature_rows16", &feature_rows<u16>, "centres"_a, "group"_a, "ids"_a, "seed"_a, "noise"_a, "threads"_a,
          "out"_a, released());
    m.def("random_labels", &random_labels, "first"_a, "num_classes"_a, "seed"_a, "out"_a, released());
}

}  // namespace outcore
