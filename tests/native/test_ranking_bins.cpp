// Sums along binned edges equal those of a plain loop to the last bit, with several threads and callers at once.
#include <random>
#include <thread>

#include "check.hpp"
#include "rank/partition.hpp"
#include "rank/ranking_bins.hpp"

using namespace outcore;

int main() {
    constexpr std::int64_t nodes = 70'000, edges = 900'000;
    std::mt19937_64 random(1);
    std::vector<std::int64_t> indptr(nodes + 1, 0);
    for (std::int64_t e = 0; e < edges; ++e) ++indptr[1 + random() % (nodes / 2)];  // half have no in-neighbours
    for (std::int64_t v = 0; v < nodes; ++v) indptr[v + 1] += indptr[v];
    std::vector<std::int32_t> sources(edges);
    for (auto& source : sources) source = static_cast<std::int32_t>(random() % nodes * (random() % 2));  // hub: node 0
    std::vector<double> values(nodes), expected(nodes, 0.0);
    for (auto& value : values) value = static_cast<double>(random() >> 11) * 0x1p-53;
    for (std::int64_t v = 0; v < nodes; ++v)
        for (std::int64_t e = indptr[v]; e < indptr[v + 1]; ++e) expected[sources[e]] += values[v];

    std::vector<std::thread> callers;
    for (unsigned caller = 0; caller < 3; ++caller) {
        callers.emplace_back([&, caller] {
            const std::int64_t piece = 100'000 + 77'777 * caller;
            std::vector<BinnedEdges> chunks;
            for (std::int64_t first = 0; first < edges; first += piece) {
                const std::int64_t count = std::min(piece, edges - first);
                BinnedEdges& chunk = chunks.emplace_back(nodes, count);
                const std::span<const std::int32_t> own(sources.data() + first, count);
                CHECK(chunk.append<std::int32_t>(own, indptr, 0, first, 1 + caller * 2));
            }
            std::vector<const BinnedEdges*> all;
            for (const auto& chunk : chunks) all.push_back(&chunk);
            const Binning binning(nodes);
            std::vector<double> sums(binning.entries(), 0.0);
            add_along(all, values, sums, 1 + caller * 2);
            for (std::int64_t u = 0; u < nodes; ++u) CHECK(sums[binning.place(u)] == expected[u]);
        });
    }
    for (auto& caller : callers) caller.join();

    // An invalid id is found, and nothing is added.
    BinnedEdges chunk(nodes, 10);
    std::vector<std::int32_t> bad(5, -1);
    CHECK(!chunk.append<std::int32_t>(bad, indptr, 0, 0, 2));
    CHECK(chunk.size() == 0);

    // Threads search in-neighbours ahead of the assignment, which does not depend on their number.
    std::vector<std::int64_t> train(500);
    for (std::size_t i = 0; i < train.size(); ++i) train[i] = static_cast<std::int64_t>(i * 37);
    const std::span<const std::int32_t> indices(sources);
    std::vector<std::vector<std::int64_t>> found;
    for (unsigned threads : {1U, 2U, 5U}) {
        std::vector<std::uint64_t> words(4 * ((nodes + 63) / 64), 0);
        const Members members{words.data(), 4, (nodes + 63) / 64};
        found.push_back(partition_greedily(indptr, indices, train, 2, {}, members, threads));
        CHECK(count_accesses(indptr, indices, train, found.back(), 2, members, threads).outside == 0);
    }
    CHECK(found[0] == found[1] && found[0] == found[2]);
}
