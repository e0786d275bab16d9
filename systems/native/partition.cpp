// L-hop in-neighbours, the greedy assignment, and the count of accesses across partitions.
#include "partition.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "task_pool.hpp"

namespace outcore {
namespace {

// Search for the in-neighbours of a node, hop by hop; one stamp a node saves clearing between searches.
class Search {
public:
    explicit Search(std::uint64_t num_nodes) : stamps_(num_nodes, 0) {}

    // Fills `found` with the node, then its in-neighbours, nearest hops first; false for an invalid id or indptr.
    template <class Id>
    bool run(const CscView<Id>& graph, std::int64_t node, unsigned hops, std::vector<std::uint32_t>& found) {
        if (++stamp_ == 0) {
            std::fill(stamps_.begin(), stamps_.end(), 0);
            stamp_ = 1;
        }
        found.clear();
        if (static_cast<std::uint64_t>(node) >= stamps_.size()) return false;
        stamps_[static_cast<std::size_t>(node)] = stamp_;
        found.push_back(static_cast<std::uint32_t>(node));
        std::size_t begin = 0;
        for (unsigned hop = 0; hop < hops; ++hop) {
            const std::size_t end = found.size();
            for (; begin < end; ++begin) {
                const std::int64_t first = graph.indptr[found[begin]];
                const std::int64_t last = graph.indptr[found[begin] + 1];
                if (first < 0 || last < first || last > static_cast<std::int64_t>(graph.indices.size())) return false;
                for (std::int64_t edge = first; edge < last; ++edge) {
                    const auto source = static_cast<std::make_unsigned_t<Id>>(graph.indices[static_cast<std::size_t>(edge)]);
                    if (source >= stamps_.size()) return false;
                    if (stamps_[source] == stamp_) continue;
                    stamps_[source] = stamp_;
                    found.push_back(static_cast<std::uint32_t>(source));
                }
            }
        }
        return true;
    }

private:
    std::vector<std::uint32_t> stamps_;
    std::uint32_t stamp_ = 0;
};

// Calls visit(i, found) for each training node in order, with the searches of `threads` nodes under way at once.
template <class Id, class Visit>
void for_each_in_order(const CscView<Id>& graph, std::span<const std::int64_t> train, unsigned hops, unsigned threads,
                       const Visit& visit) {
    const std::size_t lanes = std::max(1U, threads);
    std::vector<Search> searches(lanes, Search(graph.num_nodes()));
    std::vector<std::vector<std::uint32_t>> found(lanes);
    std::atomic<bool> sound{true};
    for (std::size_t begin = 0; begin < train.size(); begin += lanes) {
        const std::size_t count = std::min(lanes, train.size() - begin);
        TaskPool::shared().run(count, 1, threads, [&](std::size_t from, std::size_t to) {
            for (std::size_t lane = from; lane < to; ++lane) {
                if (!searches[lane].run(graph, train[begin + lane], hops, found[lane]))
                    sound.store(false, std::memory_order_relaxed);
            }
        });
        if (!sound) throw std::invalid_argument("an id is no node's, or the index pointers are of another graph");
        for (std::size_t lane = 0; lane < count; ++lane) visit(begin + lane, found[lane]);
    }
}

}  // namespace

template <class Id>
std::vector<std::int64_t> partition_greedily(const CscView<Id>& graph, std::span<const std::int64_t> train, unsigned hops,
                                             std::uint64_t partitions, std::span<const std::int64_t> given, Members members,
                                             unsigned threads) {
    const double average = static_cast<double>(train.size()) / static_cast<double>(partitions);
    const std::uint64_t room = (train.size() + partitions - 1) / partitions;
    constexpr std::int32_t none = -1;
    std::vector<std::int32_t> home(graph.num_nodes(), none);  // partition of each assigned training node
    std::vector<std::uint64_t> num_train(partitions, 0), num_nodes(partitions, 0), common(partitions, 0);
    std::vector<std::int64_t> result(train.size());
    for_each_in_order(graph, train, hops, threads, [&](std::size_t i, const std::vector<std::uint32_t>& found) {
        std::uint64_t chosen = partitions;
        if (!given.empty()) {
            chosen = static_cast<std::uint64_t>(given[i]);
        } else {
            std::fill(common.begin(), common.end(), 0);
            for (const std::uint32_t node : found)
                if (home[node] != none) ++common[static_cast<std::size_t>(home[node])];
            // Equation 1. Ties (mostly nodes without an assigned neighbour) go to the partition of fewer nodes, then of
            // fewer training nodes.
            double best = -std::numeric_limits<double>::infinity();
            for (std::uint64_t p = 0; p < partitions; ++p) {
                if (num_train[p] >= room) continue;
                const double left = average - static_cast<double>(num_train[p]);
                const auto nodes = static_cast<double>(std::max<std::uint64_t>(num_nodes[p], 1));
                const double score = static_cast<double>(common[p]) * left / nodes;
                const bool fewer = chosen < partitions && std::pair(num_nodes[p], num_train[p]) <
                                                              std::pair(num_nodes[chosen], num_train[chosen]);
                if (score > best || (score == best && fewer)) {
                    best = score;
                    chosen = p;
                }
            }
        }
        if (chosen >= partitions) throw std::invalid_argument("a partition does not exist");
        result[i] = static_cast<std::int64_t>(chosen);
        home[found.front()] = static_cast<std::int32_t>(chosen);
        ++num_train[chosen];
        std::uint64_t* const words = members.words.data() + chosen * members.stride;
        for (const std::uint32_t node : found) {
            std::uint64_t& word = words[node / 64];
            const std::uint64_t bit = std::uint64_t{1} << (node % 64);
            num_nodes[chosen] += (word & bit) == 0;
            word |= bit;
        }
    });
    return result;
}

template <class Id>
Accesses count_accesses(const CscView<Id>& graph, std::span<const std::int64_t> train,
                        std::span<const std::int64_t> partition_of, unsigned hops, Members members, unsigned threads) {
    Accesses counts;
    for_each_in_order(graph, train, hops, threads, [&](std::size_t i, const std::vector<std::uint32_t>& found) {
        const auto partition = static_cast<std::uint64_t>(partition_of[i]);
        if (members.stride == 0 || partition >= members.words.size() / members.stride) throw std::invalid_argument("a partition does not exist");
        counts.all += found.size();
        for (const std::uint32_t node : found) counts.outside += !members.has(partition, node);
    });
    return counts;
}

template std::vector<std::int64_t> partition_greedily(const CscView<std::int32_t>&, std::span<const std::int64_t>, unsigned,
                                                      std::uint64_t, std::span<const std::int64_t>, Members, unsigned);
template Accesses count_accesses(const CscView<std::int32_t>&, std::span<const std::int64_t>, std::span<const std::int64_t>,
                                 unsigned, Members, unsigned);
template std::vector<std::int64_t> partition_greedily(const CscView<std::int64_t>&, std::span<const std::int64_t>, unsigned,
                                                      std::uint64_t, std::span<const std::int64_t>, Members, unsigned);
template Accesses count_accesses(const CscView<std::int64_t>&, std::span<const std::int64_t>, std::span<const std::int64_t>,
                                 unsigned, Members, unsigned);

}  // namespace outcore
