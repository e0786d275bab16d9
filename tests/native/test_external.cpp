// Distributing rows, sampling out of core and planning slots, over files of known content and in many sizes.
#include <sys/resource.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <map>
#include <numeric>
#include <set>
#include <thread>

#include "cache/slot_plan.hpp"
#include "check.hpp"
#include "sampling/external_sampler.hpp"
#include "store/distribute.hpp"

using namespace outcore;

namespace {

// Samples one group from begin to finish.
std::optional<ExternalFailure> sample(ExternalSampler& sampler, std::uint64_t epoch,
                                      std::span<const std::int64_t> numbers, std::span<const std::int64_t> seeds,
                                      std::span<const std::int64_t> offsets, std::size_t hops = 3) {
    sampler.forget();
    sampler.begin(epoch, numbers, seeds, offsets);
    for (std::size_t hop = 0; hop < hops; ++hop)
        if (const auto failure = sampler.pass()) return failure;
    sampler.finish();
    return std::nullopt;
}

template <class T>
void fill(const TestFile& file, const std::vector<T>& values) {
    FILE* out = std::fopen(file.path.c_str(), "wb");
    CHECK(std::fwrite(values.data(), sizeof(T), values.size(), out) == values.size());
    std::fclose(out);
}

void rows_reach_their_chunks(std::uint64_t row_bytes, std::uint32_t buffer_bytes, std::uint32_t region_bytes,
                             bool ring = true) {
    constexpr std::uint64_t offset = 64, chunks = 9;
    const std::uint32_t num_rows = row_bytes > 1000 ? 600 : 3000;
    const TestFile table(offset + num_rows * row_bytes);
    const TestFile out(chunks * ((num_rows * row_bytes + 8191) / 4096) * 4096, 2);
    std::mt19937 random(3);
    std::vector<std::uint32_t> ids;
    std::vector<PackChunk> wanted;
    std::uint64_t at = 0;
    for (std::uint64_t c = 0; c < chunks; ++c) {
        const std::uint64_t begin = ids.size();
        for (std::uint32_t row = 0; row < num_rows; ++row)
            if (c != 4 && random() % (c + 1) == 0) ids.push_back(row);
        wanted.push_back({0, at, begin, ids.size()});
        at += ((ids.size() - begin) * row_bytes + 4095) / 4096 * 4096;
    }
    const std::atomic<bool> stop{false};
    DistributeOptions options;
    options.region_bytes = region_bytes;
    options.buffer_bytes = buffer_bytes;
    options.regions = 3;
    options.choice.want_ring = ring;
    const auto result = distribute({table.path, offset, num_rows, row_bytes}, out.path, wanted, ids, options, stop);
    CHECK(!result.failure);
    CHECK(result.digests[4] == 0 && result.digests[0] != 0);
    std::vector<std::byte> found(std::filesystem::file_size(out.path));
    FILE* file = std::fopen(out.path.c_str(), "rb");
    CHECK(std::fread(found.data(), 1, found.size(), file) == found.size());
    std::fclose(file);
    for (const auto& chunk : wanted) {
        std::uint64_t place = chunk.offset;
        for (std::uint64_t i = chunk.begin; i < chunk.end; ++i, place += row_bytes)
            CHECK(std::memcmp(found.data() + place, table.bytes.data() + offset + ids[i] * row_bytes, row_bytes) == 0);
    }
    const std::atomic<bool> stopped{true};
    bool told = false;
    try {
        distribute({table.path, offset, num_rows, row_bytes}, out.path, wanted, ids, options, stopped);
    } catch (const std::runtime_error&) {
        told = true;
    }
    CHECK(told);
    const auto cut =
        distribute({table.path, offset, 2 * num_rows, row_bytes}, out.path, std::vector<PackChunk>{{0, 0, 0, 1}},
                   std::vector<std::uint32_t>{2 * num_rows - 1}, options, stop);
    CHECK(cut.failure && cut.failure->code == 0 && !cut.failure->writing);
}

// A file that may grow no further: a short write resumes where it ended, and the failure has that offset.
void a_write_that_fails_is_told(bool ring) {
    constexpr std::uint64_t num_rows = 4096, row_bytes = 512, limit = 5 * 4096;
    const TestFile table(num_rows * row_bytes), out(0);
    std::vector<std::uint32_t> ids(num_rows);
    std::iota(ids.begin(), ids.end(), 0U);
    DistributeOptions options;
    options.choice.want_ring = ring;
    options.writers = 1;
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    const rlimit little{limit, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &little);
    const std::atomic<bool> stop{false};
    const auto result = distribute({table.path, 0, num_rows, row_bytes}, out.path,
                                   std::vector<PackChunk>{{0, 0, 0, num_rows}}, ids, options, stop);
    setrlimit(RLIMIT_FSIZE, &before);
    CHECK(result.failure && result.failure->writing && result.failure->code == EFBIG);
    CHECK(result.failure->offset == limit);
}

// Long requests begin at a page, and read no byte twice for it; short ones are as short as the device allows.
void long_requests_begin_at_a_page() {
    const TestFile file(64 * 4096);
    PieceFile pieces(file.path, {32 * 4096, 2, 8, 64 * 4096, 0, true, false, 0});
    const std::uint64_t unit = pieces.unit_bytes(), each = 4096 / unit;
    PieceFile::Units units(32 * each / 64 + 1);
    const auto mark = [&](std::uint64_t from, std::uint64_t to) {
        for (std::uint64_t u = from; u < to; ++u) PieceFile::mark(units, u);
    };
    mark(each - 1, each);            // short, in the midst of page 0
    mark(2 * each - 1, 12 * each);   // long, from the midst of page 1 on
    mark(13 * each - 1, 13 * each);  // short, at the end of page 12
    if (each > 3) mark(14 * each - 4, 14 * each - 3);
    if (each > 3) mark(14 * each - 1, 30 * each);  // long, but its page holds the end of another request
    RequestCounts reads;
    const auto read = pieces.begin(32 * 4096, units, reads);
    CHECK(!pieces.wait(read));
    for (std::uint64_t u = 0; u < 32 * each; ++u)
        if (PieceFile::marked(units, u))
            CHECK(std::memcmp(read.memory + u * unit, file.bytes.data() + 32 * 4096 + u * unit, unit) == 0);
    std::map<std::uint64_t, std::uint64_t> expected;
    for (const std::uint64_t bytes : {unit, 11 * 4096UL, unit}) ++expected[bytes];
    if (each > 3) {
        ++expected[unit];
        ++expected[16 * 4096 + unit];
    }
    CHECK(reads.by_size == expected);
}

// Mini-batches of the finished group, laid out in memory of `room` bytes at first, and their nodes.
struct Laid {
    std::vector<LaidOut> sizes;
    std::vector<std::byte> bytes;
    std::vector<std::uint32_t> nodes;

    bool operator==(const Laid& other) const { return equal_bytes(bytes, other.bytes) && nodes == other.nodes; }
};

Laid laid_out(ExternalSampler& sampler, std::span<const std::int64_t> offsets, std::size_t room = 1 << 16) {
    std::vector<std::int64_t> labels(static_cast<std::size_t>(offsets.back()));
    std::iota(labels.begin(), labels.end(), 100);
    Laid found;
    std::vector<std::byte> memory(room);
    std::vector<std::uint32_t> nodes(10);
    while (found.sizes.size() + 1 < offsets.size()) {
        const auto begin = found.sizes.size();
        const auto made = sampler.lay_out(begin, labels, offsets, memory, nodes);
        if (made.empty()) {
            const LaidOut next = sampler.laid_out(begin, static_cast<std::size_t>(offsets[begin + 1] - offsets[begin]));
            CHECK(next.bytes > memory.size() || next.nodes > nodes.size());
            memory.resize(std::max(memory.size(), static_cast<std::size_t>(next.bytes)));
            nodes.resize(std::max(nodes.size(), static_cast<std::size_t>(next.nodes)));
            continue;
        }
        std::size_t bytes = 0, count = 0;
        for (const auto& one : made) {
            bytes += one.bytes;
            count += one.nodes;
        }
        found.bytes.insert(found.bytes.end(), memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(bytes));
        found.nodes.insert(found.nodes.end(), nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(count));
        found.sizes.insert(found.sizes.end(), made.begin(), made.end());
        bool told = false;
        try {
            sampler.lay_out(begin, labels, offsets, memory, nodes);
        } catch (const std::invalid_argument&) {
            told = true;
        }
        CHECK(told);  // each mini-batch once
    }
    return found;
}

// A ring graph: the in-neighbours of node i are the 20 nodes that follow it.
void a_ring_is_sampled() {
    constexpr std::int64_t nodes = 5000, degree = 20;
    TestFile indptr(8 * (nodes + 1)), indices(4 * nodes * degree);
    std::vector<std::int64_t> pointers(nodes + 1);
    std::vector<std::int32_t> lists;
    for (std::int64_t i = 0; i <= nodes; ++i) pointers[static_cast<std::size_t>(i)] = degree * i;
    for (std::int64_t i = 0; i < nodes; ++i)
        for (std::int64_t k = 1; k <= degree; ++k) lists.push_back(static_cast<std::int32_t>((i + k) % nodes));
    fill(indptr, pointers);
    fill(indices, lists);
    for (const std::uint32_t piece : {4096U, 65536U}) {
        ExternalOptions options;
        options.fanout = {5, 7, 20};
        options.piece_bytes = piece;
        options.pieces = 2;
        options.group_nodes = 16;
        ExternalSampler sampler({indptr.path, 0, 8, nodes + 1}, {indices.path, 0, 4, nodes * degree}, options);
        const std::vector<std::int64_t> numbers{0, 1, 2}, seeds{4990, 3, 70, 4, 2000, 2001}, offsets{0, 3, 4, 6};
        CHECK(!sample(sampler, 2, numbers, seeds, offsets));
        const Laid found = laid_out(sampler, offsets, 4096);
        const std::byte* at = found.bytes.data();
        for (std::size_t b = 0; b < 3; ++b) {
            const std::byte* next = at;
            const auto read = [&]<class T>(std::size_t count, T) {
                std::vector<T> values(count);
                std::memcpy(values.data(), next, count * sizeof(T));
                next += (count * sizeof(T) + 7) / 8 * 8;
                return values;
            };
            const auto batch = read(found.sizes[b].nodes, std::uint32_t{});
            CHECK(std::set<std::uint32_t>(batch.begin(), batch.end()).size() == batch.size());
            const auto fields = read(8, std::int64_t{});
            const std::int64_t count = offsets[b + 1] - offsets[b];
            CHECK(fields[0] == 2 && fields[1] == static_cast<std::int64_t>(b) && fields[2] == count && fields[6] == 4 &&
                  fields[7] == 3);
            const auto shapes = read(12, std::int64_t{});
            const auto labels = read(static_cast<std::size_t>(count), std::int64_t{});
            CHECK(labels.front() == 100 + offsets[b]);
            std::int64_t edges = 0;
            for (std::size_t h = 0; h < 3; ++h) {
                const auto starts = read(static_cast<std::size_t>(shapes[4 * h + 1]) + 1, std::uint32_t{});
                const auto sources = read(static_cast<std::size_t>(shapes[4 * h + 2]), std::int32_t{});
                edges += shapes[4 * h + 2];
                for (std::size_t i = 0; i + 1 < starts.size(); ++i) {
                    for (auto e = starts[i]; e < starts[i + 1]; ++e) {
                        const std::int64_t source = batch[static_cast<std::size_t>(sources[e])];
                        const std::int64_t step = (source - batch[i] + nodes) % nodes;
                        CHECK(step >= 1 && step <= degree);
                    }
                }
            }
            CHECK(fields[3] == edges && edges > 0);
            CHECK(static_cast<std::uint64_t>(next - at) == (4 * batch.size() + 7) / 8 * 8 + found.sizes[b].body_bytes);
            at += found.sizes[b].bytes;
        }
        CHECK(at == found.bytes.data() + found.bytes.size());
    }
}

// Several threads sample the same mini-batches of a ring graph as one thread.
void threads_sample_the_same() {
    constexpr std::int64_t nodes = 20000, degree = 20;
    TestFile indptr(8 * (nodes + 1)), indices(4 * nodes * degree);
    std::vector<std::int64_t> pointers(nodes + 1), numbers, seeds, offsets{0};
    std::vector<std::int32_t> lists;
    for (std::int64_t i = 0; i <= nodes; ++i) pointers[static_cast<std::size_t>(i)] = degree * i;
    for (std::int64_t i = 0; i < nodes; ++i)
        for (std::int64_t k = 1; k <= degree; ++k) lists.push_back(static_cast<std::int32_t>((i + 97 * k) % nodes));
    fill(indptr, pointers);
    fill(indices, lists);
    for (std::int64_t b = 0; b < 12; ++b) {
        numbers.push_back(b);
        for (std::int64_t i = 0; i < 50; ++i) seeds.push_back((b * 1000 + 37 * i) % nodes);
        offsets.push_back(static_cast<std::int64_t>(seeds.size()));
    }
    const auto sampled = [&](std::uint32_t threads) {
        ExternalOptions options;
        options.fanout = {10, 10};
        options.piece_bytes = 1 << 16;
        options.threads = threads;
        ExternalSampler sampler({indptr.path, 0, 8, nodes + 1}, {indices.path, 0, 4, nodes * degree}, options);
        CHECK(!sample(sampler, 1, numbers, seeds, offsets, 2));
        auto found = laid_out(sampler, offsets);
        return std::pair{std::move(found), sampler.reads().bytes_read};
    };
    const auto [wanted, bytes] = sampled(1);
    CHECK(wanted.sizes.size() == 12);
    for (const std::uint32_t threads : {2U, 5U}) {
        const auto [found, read] = sampled(threads);
        CHECK(read == bytes && found == wanted);
    }
}

// Groups that share passes sample the same mini-batches as each group alone.
void groups_share_passes() {
    constexpr std::int64_t nodes = 8000, degree = 12;
    TestFile indptr(8 * (nodes + 1)), indices(4 * nodes * degree);
    std::vector<std::int64_t> pointers(nodes + 1);
    std::vector<std::int32_t> lists;
    for (std::int64_t i = 0; i <= nodes; ++i) pointers[static_cast<std::size_t>(i)] = degree * i;
    for (std::int64_t i = 0; i < nodes; ++i)
        for (std::int64_t k = 1; k <= degree; ++k) lists.push_back(static_cast<std::int32_t>((i + 131 * k) % nodes));
    fill(indptr, pointers);
    fill(indices, lists);
    ExternalOptions options;
    options.fanout = {4, 4, 4};
    options.piece_bytes = 1 << 16;
    options.threads = 3;
    ExternalSampler alone({indptr.path, 0, 8, nodes + 1}, {indices.path, 0, 4, nodes * degree}, options);
    ExternalSampler shared({indptr.path, 0, 8, nodes + 1}, {indices.path, 0, 4, nodes * degree}, options);
    const auto seeds_of = [](std::int64_t group) {
        std::vector<std::int64_t> seeds;
        for (std::int64_t i = 0; i < 80; ++i) seeds.push_back((group * 911 + 17 * i) % nodes);
        return seeds;
    };
    const std::vector<std::int64_t> numbers{0, 1}, offsets{0, 30, 80};
    bool told = false;
    try {
        shared.finish();
    } catch (const std::invalid_argument&) {
        told = true;
    }
    CHECK(told);
    std::int64_t begun = 0;
    for (std::int64_t group = 0; group < 4; ++group) {
        for (int hop = group == 0 ? 0 : 2; hop < 3; ++hop) {
            shared.begin(static_cast<std::uint64_t>(begun), numbers, seeds_of(begun), offsets);
            ++begun;
            CHECK(!shared.pass());
        }
        shared.finish();
        CHECK(!sample(alone, static_cast<std::uint64_t>(group), numbers, seeds_of(group), offsets));
        CHECK(laid_out(shared, offsets) == laid_out(alone, offsets));
    }
    shared.forget();
    CHECK(!sample(shared, 9, numbers, seeds_of(9), offsets));
}

void rows_are_in_their_slots() {
    std::mt19937 random(5);
    for (std::uint32_t window = 1; window < 4; ++window) {
        SlotPlanner planner(160, window, true);
        std::vector<std::int64_t> table(160, -1);
        for (int call = 0; call < 5; ++call) {
            std::vector<std::uint32_t> nodes;
            std::vector<std::int64_t> offsets{0}, seeds;
            for (int b = 0; b < 15; ++b) {
                std::set<std::uint32_t> batch;
                while (batch.size() < 30) batch.insert(static_cast<std::uint32_t>(random() % 100 * (random() % 6)));
                nodes.insert(nodes.end(), batch.begin(), batch.end());
                offsets.push_back(static_cast<std::int64_t>(nodes.size()));
                seeds.push_back(0);
            }
            planner.plan(nodes, offsets, seeds);
            for (std::size_t b = 0; b < 15; ++b) {
                const auto misses = planner.misses(b);
                for (std::size_t i = 0; i < misses.ids.size(); ++i)
                    table[static_cast<std::size_t>(misses.slots[i])] = misses.ids[i];
                const auto slots = planner.slots(b);
                for (std::size_t i = 0; i < slots.size(); ++i)
                    CHECK(table[static_cast<std::size_t>(slots[i])] == nodes[static_cast<std::size_t>(offsets[b]) + i]);
            }
            CHECK(call == 0 || planner.carried() > 0);
            planner.clear();
        }
    }
}

// Three threads make the plan of one thread, for many uses, popular nodes, and slots and rows of previous calls.
void threads_plan_the_same() {
    std::mt19937 random(6);
    SlotPlanner alone(9000, 2, true), three(9000, 2, true, 3);
    for (int call = 0; call < 3; ++call) {
        std::vector<std::uint32_t> nodes;
        std::vector<std::int64_t> offsets{0}, seeds;
        for (int b = 0; b < 20; ++b) {
            std::set<std::uint32_t> batch;
            while (batch.size() < 3000) batch.insert(static_cast<std::uint32_t>(random() % 200 * (random() % 200)));
            std::vector<std::uint32_t> order(batch.begin(), batch.end());
            std::shuffle(order.begin(), order.begin() + 40, random);
            nodes.insert(nodes.end(), order.begin(), order.end());
            offsets.push_back(static_cast<std::int64_t>(nodes.size()));
            seeds.push_back(40);
        }
        for (auto* planner : {&alone, &three}) planner->plan(nodes, offsets, seeds);
        CHECK(alone.hits() == three.hits() && alone.carried() == three.carried());
        for (std::size_t b = 0; b < 20; ++b) {
            const auto one = alone.misses(b), other = three.misses(b);
            CHECK(one.ids == other.ids && one.slots == other.slots && std::is_sorted(one.ids.begin(), one.ids.end()));
            CHECK(alone.slots(b) == three.slots(b));
        }
        for (auto* planner : {&alone, &three}) planner->clear();
    }
}

}  // namespace

int main() {
    for (const std::uint64_t row_bytes : {2ULL, 12ULL, 512ULL, 5000ULL})
        for (const std::uint32_t buffer : {4096U, 1U << 16})
            for (const std::uint32_t region : {4096U, 1U << 18})
                for (const bool ring : {true, false}) rows_reach_their_chunks(row_bytes, buffer, region, ring);
    for (const bool ring : {true, false}) a_write_that_fails_is_told(ring);
    long_requests_begin_at_a_page();
    a_ring_is_sampled();
    threads_sample_the_same();
    groups_share_passes();
    rows_are_in_their_slots();
    threads_plan_the_same();
}
