// Changesets against a plain implementation of Belady: equal hits for random traces, sizes and threads, the best
// evictions and entries at each step; every slot holds its planned node; wrong calls are refused.
#include "cache/changeset.hpp"

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "check.hpp"

using namespace outcore;

namespace {

using Trace = std::vector<std::vector<std::int64_t>>;  // distinct nodes of each batch
constexpr std::uint32_t never = UINT32_MAX;

// Next use of each node; batches are passed one after the other.
class Future {
public:
    explicit Future(const Trace& trace) {
        for (std::size_t b = trace.size(); b-- > 0;) {
            for (const std::int64_t node : trace[b]) uses_[node].push_back(static_cast<std::uint32_t>(b));
        }
    }
    void pass(const std::vector<std::int64_t>& batch) {
        for (const std::int64_t node : batch) uses_[node].pop_back();
    }
    std::uint32_t next(std::int64_t node) const {
        const auto found = uses_.find(node);
        return found == uses_.end() || found->second.empty() ? never : found->second.back();
    }

private:
    std::map<std::int64_t, std::vector<std::uint32_t>> uses_;  // by node, the next use last
};

// Belady's choice after a batch that `Future` has passed: the nodes used again soonest stay; cached nodes win ties.
struct Choice {
    std::set<std::int64_t> cache;
    std::vector<std::uint32_t> next;  // next uses of the cached nodes, ascending
    std::uint64_t hits = 0, evictions = 0, entries = 0;
};

Choice choose(const Future& future, const std::set<std::int64_t>& cache, const std::vector<std::int64_t>& batch,
              std::uint64_t capacity) {
    Choice choice;
    std::vector<std::tuple<std::uint32_t, bool, std::int64_t>> at_hand;  // next use, whether new, node
    const auto add = [&](std::int64_t node, bool is_new) {
        if (future.next(node) != never) at_hand.emplace_back(future.next(node), is_new, node);
    };
    for (const std::int64_t node : cache) add(node, false);
    for (const std::int64_t node : batch) {
        if (cache.contains(node)) {
            ++choice.hits;
        } else {
            add(node, true);
        }
    }
    std::sort(at_hand.begin(), at_hand.end());
    for (std::size_t i = 0; i < at_hand.size(); ++i) {
        const auto& [when, is_new, node] = at_hand[i];
        if (i >= capacity) {
            choice.evictions += !is_new;
            continue;
        }
        choice.cache.insert(node);
        choice.next.push_back(when);
        choice.entries += is_new;
    }
    return choice;
}

Trace random_trace(std::mt19937_64& random, std::int64_t num_nodes, std::size_t batches, std::int64_t most) {
    std::vector<std::int64_t> nodes(static_cast<std::size_t>(num_nodes));
    for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i] = static_cast<std::int64_t>(i);
    Trace trace(batches);
    for (auto& batch : trace) {
        const std::size_t size = random() % static_cast<std::size_t>(most + 1);  // sometimes an empty batch
        for (std::size_t i = 0; i < size; ++i) {
            // Squared, so that some nodes are used far more often than others.
            const double at = static_cast<double>(random() >> 11) * 0x1p-53;
            std::swap(nodes[i], nodes[i + static_cast<std::size_t>(at * at * static_cast<double>(nodes.size() - i))]);
        }
        batch.assign(nodes.begin(), nodes.begin() + static_cast<std::ptrdiff_t>(size));
    }
    return trace;
}

std::set<std::int64_t> first_nodes(const Trace& trace, std::uint64_t capacity) {
    std::set<std::int64_t> cache;
    for (const auto& batch : trace) {
        for (const std::int64_t node : batch) {
            if (cache.size() < capacity) cache.insert(node);
        }
    }
    return cache;
}

// Returns all changesets; tracks every slot, and checks that each step is the best from the planner's state. Any of
// several nodes with the same next use may be kept: later hits do not depend on the choice, later entries do.
std::vector<Changeset> planned(const Trace& trace, std::int64_t num_nodes, std::uint64_t capacity, unsigned threads,
                               bool fill) {
    std::vector<std::int64_t> sizes;
    for (const auto& batch : trace) sizes.push_back(static_cast<std::int64_t>(batch.size()));
    ChangesetPlanner planner(static_cast<std::uint64_t>(num_nodes), capacity, sizes, threads);
    const auto count = static_cast<std::uint32_t>(trace.size());
    for (std::uint32_t b = count; b-- > 0;) planner.look_back(b, trace[b]);
    for (std::uint32_t b = 0; fill && b < count && !planner.fill(b, trace[b]); ++b) {}
    planner.begin();
    std::vector<std::int64_t> in_slot = planner.held(0, UINT64_MAX);
    CHECK(planner.filled() <= in_slot.size() && in_slot.size() <= capacity);
    CHECK(std::all_of(in_slot.begin() + static_cast<std::ptrdiff_t>(planner.filled()), in_slot.end(),
                      [](auto node) { return node == -1; }));
    in_slot.resize(planner.filled());
    CHECK(std::is_sorted(in_slot.begin(), in_slot.end()));
    const auto expected = fill ? first_nodes(trace, capacity) : std::set<std::int64_t>{};
    CHECK(std::equal(in_slot.begin(), in_slot.end(), expected.begin(), expected.end()));
    in_slot.resize(capacity, -1);
    Future future(trace);
    std::set<std::int64_t> cache = expected;
    std::vector<Changeset> result;
    for (std::uint32_t b = 0; b < count; ++b) {
        const Changeset changes = planner.advance(b, trace[b]);
        CHECK(changes.slots.size() == trace[b].size() && changes.in_slots.size() == changes.in_positions.size());
        std::uint64_t hits = 0;
        for (std::size_t i = 0; i < trace[b].size(); ++i) {
            if (changes.slots[i] < 0) continue;
            ++hits;
            CHECK(in_slot.at(static_cast<std::size_t>(changes.slots[i])) == trace[b][i]);
        }
        CHECK(hits == changes.hits);
        std::set<std::int32_t> taken;
        for (std::size_t i = 0; i < changes.in_slots.size(); ++i) {
            const auto position = static_cast<std::size_t>(changes.in_positions[i]);
            CHECK(changes.slots.at(position) < 0);  // only misses enter
            CHECK(taken.insert(changes.in_slots[i]).second);
            in_slot.at(static_cast<std::size_t>(changes.in_slots[i])) = trace[b][position];
        }
        future.pass(trace[b]);
        const Choice best = choose(future, cache, trace[b], capacity);
        CHECK(changes.hits == best.hits && changes.evictions == best.evictions &&
              changes.in_slots.size() == best.entries);
        // A slot keeps its node until another one enters, also a node that is not used again.
        cache.clear();
        std::vector<std::uint32_t> next;
        for (const std::int64_t node : in_slot) {
            if (node < 0 || future.next(node) == never) continue;
            CHECK(cache.insert(node).second);
            next.push_back(future.next(node));
        }
        std::sort(next.begin(), next.end());
        CHECK(next == best.next);
        result.push_back(changes);
    }
    CHECK(planner.memory_bytes() > 0);
    return result;
}

void hits_are_those_of_belady(const Trace& trace, std::int64_t num_nodes, std::uint64_t capacity) {
    for (const bool fill : {true, false}) {
        const auto alone = planned(trace, num_nodes, capacity, 1, fill);
        const auto together = planned(trace, num_nodes, capacity, 4, fill);
        Future future(trace);
        auto cache = fill ? first_nodes(trace, capacity) : std::set<std::int64_t>{};
        for (std::size_t b = 0; b < trace.size(); ++b) {
            future.pass(trace[b]);
            Choice best = choose(future, cache, trace[b], capacity);
            CHECK(alone[b].hits == best.hits);
            cache = std::move(best.cache);
            CHECK(alone[b].slots == together[b].slots && alone[b].in_slots == together[b].in_slots);
            CHECK(alone[b].in_positions == together[b].in_positions);
        }
    }
}

template <class Error, class Call>
void refuses(const Call& call) {
    bool thrown = false;
    try {
        call();
    } catch (const Error&) {
        thrown = true;
    }
    CHECK(thrown);
}

void wrong_calls_are_refused() {
    const std::vector<std::int64_t> sizes{2, 2};
    const std::vector<std::int64_t> good{0, 1}, twice{1, 1}, beyond{0, 9}, longer{0, 1, 2};
    const auto fresh = [&] { return ChangesetPlanner(4, 2, sizes, 1); };
    refuses<std::invalid_argument>([&] { fresh().look_back(0, good); });    // the last batch comes first
    refuses<std::invalid_argument>([&] { fresh().look_back(1, longer); });  // not the size announced
    refuses<std::invalid_argument>([&] { fresh().look_back(1, twice); });
    refuses<std::out_of_range>([&] { fresh().look_back(1, beyond); });
    refuses<std::invalid_argument>([&] { fresh().begin(); });
    refuses<std::invalid_argument>([&] { fresh().advance(0, good); });
    refuses<std::invalid_argument>([&] { ChangesetPlanner(4, 2, std::vector<std::int64_t>{5}, 1); });
    ChangesetPlanner planner = fresh();
    planner.look_back(1, good);
    planner.look_back(0, good);
    refuses<std::invalid_argument>([&] { planner.look_back(0, good); });
    planner.begin();
    refuses<std::invalid_argument>([&] { planner.advance(1, good); });
    refuses<std::invalid_argument>([&] { planner.advance(0, beyond); });
}

}  // namespace

int main() {
    std::mt19937_64 random(1);
    for (int round = 0; round < 200; ++round) {
        const auto num_nodes = static_cast<std::int64_t>(1 + random() % 60);
        const Trace trace = random_trace(random, num_nodes, random() % 30, num_nodes);
        hits_are_those_of_belady(trace, num_nodes, random() % static_cast<std::uint64_t>(num_nodes + 5));
    }
    // Batches large enough for several threads to share.
    hits_are_those_of_belady(random_trace(random, 60'000, 10, 40'000), 60'000, 9'000);
#ifndef __SANITIZE_THREAD__
    // More batches than two bytes can number: nothing that threads share, and 20 s under ThreadSanitizer.
    hits_are_those_of_belady(random_trace(random, 40, 66'000, 3), 40, 7);
#endif
    wrong_calls_are_refused();
}
