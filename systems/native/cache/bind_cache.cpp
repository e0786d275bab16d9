// Bindings of the feature buffer, shared staging buffer, changeset planner, slot planner and cache policies.
#include "base/arrays.hpp"
#include "cache/changeset.hpp"
#include "cache/demand/demand_cache.hpp"
#include "cache/feature_buffer.hpp"
#include "cache/policies.hpp"
#include "cache/segment_pool.hpp"
#include "cache/slot_plan.hpp"

OUTCORE_TUPLE(SegmentCounts, 2)
OUTCORE_TUPLE(Changeset, 5)
OUTCORE_TUPLE(DenseRows, 2)
OUTCORE_TUPLE(SlotMisses, 2)
OUTCORE_TUPLE(DirectRows, 2)
OUTCORE_TUPLE(DemandLookup, 5)

namespace outcore {

inline nb::dict dict_of(const BufferCounts& counts) {
    return as_dict(
        {{"hits", counts.hits}, {"shared", counts.shared}, {"misses", counts.misses}, {"evictions", counts.evictions}});
}

namespace {

const char* name_of(BufferState state) {
    return std::array{"ok", "timeout", "closed", "too_small", "failed"}[static_cast<size_t>(state)];
}

// Feature buffer with the shared memory that it lies in; no array where it owns its memory.
using SharedBuffer = Holding<FeatureBuffer, OutBytes>;
// Segment pool with the shared memory that it lies in.
using Pool = Holding<SegmentPool, OutBytes>;
// Slot planner with the nodes of the latest plan, which it keeps reading.
using Planner = Holding<SlotPlanner, In<u32>>;

void bind_buffers(nb::module_& m) {
    nb::class_<SharedBuffer>(m, "FeatureBuffer", "Slot, references and state of each node's row; holds no rows itself.")
        .def(
            "__init__", [](SharedBuffer* self, u32 num_slots) { new (self) SharedBuffer({}, num_slots); },
            "num_slots"_a)
        .def(
            "__init__",
            [](SharedBuffer* self, u32 num_slots, const OutBytes& memory, bool create) {
                new (self) SharedBuffer({memory}, num_slots, bytes_of(memory), create);
            },
            "num_slots"_a, "memory"_a, "create"_a)
        .def_static("bytes", &FeatureBuffer::bytes, "num_slots"_a)
        .def(
            "acquire",
            [](SharedBuffer& self, Ids ids, double timeout_s) {
                Acquired result;
                u64 needed = 0;
                const auto state = self.acquire(ids, timeout_s, result, needed);
                return std::tuple(name_of(state), needed, std::move(result.alias), std::move(result.load),
                                  std::move(result.waiting));
            },
            "ids"_a, "timeout_s"_a, released(), "Returns (state, unique rows, alias, load, waiting).")
        .def("publish", &SharedBuffer::publish, "slots"_a, released())
        .def("fail", &SharedBuffer::fail, "slots"_a, "error"_a, released())
        .def(
            "wait",
            [](SharedBuffer& self, Ids slots, double timeout_s) {
                std::string error;
                const auto state = self.wait(slots, timeout_s, error);
                return std::tuple(name_of(state), std::move(error));
            },
            "slots"_a, "timeout_s"_a, released(), "Returns (state, error).")
        .def("release", &SharedBuffer::release, "slots"_a, released())
        .def("slots_of", &SharedBuffer::slots_of, "ids"_a, released())
        .def("close", &SharedBuffer::close, released())
        .def_prop_ro("standby", &SharedBuffer::standby)
        .def_prop_ro("counts", &SharedBuffer::counts);

    nb::class_<Pool>(m, "SegmentPool", "Holder and nodes of each segment of a staging buffer that processes share.")
        .def(
            "__init__",
            [](Pool* self, u32 parties, u32 portion, u32 segment_rows, const OutBytes& memory, bool create) {
                new (self) Pool({memory}, parties, portion, segment_rows, bytes_of(memory), create);
            },
            "parties"_a, "portion"_a, "segment_rows"_a, "memory"_a, "create"_a)
        .def_static("bytes", &SegmentPool::bytes, "parties"_a, "portion"_a, "segment_rows"_a)
        .def(
            "acquire",
            [](Pool& self, u32 party, bool borrow, bool block) -> i64 {
                u32 segment = 0;
                switch (self.acquire(party, borrow, block, segment)) {
                    case SegmentPool::State::ok: return segment;
                    case SegmentPool::State::none: return -1;
                    default: return -2;
                }
            },
            "party"_a, "borrow"_a, "block"_a, released(),
            "Returns the segment, -1 where none is available now, -2 where the pool is closed.")
        .def("release", &Pool::release, "party"_a, "segment"_a, released())
        .def("publish", &Pool::publish, "segment"_a, "nodes"_a, released())
        .def("present", &Pool::present, "nodes"_a, released())
        .def("fetch", &Pool::fetch, "party"_a, "segment"_a, "nodes"_a, "staging"_a, "row_bytes"_a, released())
        .def("close", &Pool::close, released())
        .def("counts", &Pool::counts, "party"_a, "Returns (borrowed segments, rows found).");
}

void bind_planners(nb::module_& m) {
    nb::class_<ChangesetPlanner>(m, "ChangesetPlanner", "Belady's replacement over a superbatch, in three passes.")
        .def(nb::init<u64, u64, Ids, unsigned>(), "num_nodes"_a, "capacity"_a, "batch_sizes"_a, "threads"_a, released())
        .def("look_back", &ChangesetPlanner::look_back, "batch"_a, "nodes"_a, released())
        .def("fill", &ChangesetPlanner::fill, "batch"_a, "nodes"_a, released(),
             "Returns True once the cache is full or the last mini-batch is done.")
        .def(
            "begin", [](ChangesetPlanner& self) { self.begin(); }, released())
        .def("begin", &ChangesetPlanner::begin, "resident"_a, released())
        .def("held", &ChangesetPlanner::held, "begin"_a, "end"_a)
        .def("advance", &ChangesetPlanner::advance, "batch"_a, "nodes"_a, released(),
             "Returns (slots, in_positions, in_slots, hits, evictions).")
        .def_prop_ro("filled", &ChangesetPlanner::filled)
        .def_prop_ro("memory_bytes", &ChangesetPlanner::memory_bytes)
        .def_static("bytes", &ChangesetPlanner::bytes, "num_nodes"_a, "capacity"_a, "accesses"_a, "batches"_a);

    nb::class_<Planner>(m, "SlotPlanner", "Plans the slots of feature rows for a sequence of mini-batches.")
        .def(
            "__init__",
            [](Planner* self, u32 slots, u32 window, bool keep, u32 threads) {
                new (self) Planner({}, slots, window, keep, threads);
            },
            "slots"_a, "window"_a, "keep"_a, "threads"_a = 1)
        .def(
            "plan",
            [](Planner& self, const In<u32>& nodes, Ids offsets, Ids seeds, bool direct) {
                self.clear();
                self.hold(nodes);
                unlocked([&] { self.plan(span_of(nodes), offsets, seeds, direct); });
            },
            "nodes"_a, "offsets"_a, "seeds"_a, "direct"_a = false)
        .def(
            "pin", [](Planner& self, const In<u32>& nodes) { self.pin(span_of(nodes)); }, "nodes"_a)
        .def("direct", &Planner::direct, released(),
             "Returns the rows to read before the first mini-batch, ascending, and their slots.")
        .def("direct_uses", &Planner::direct_uses, "slots"_a, released(),
             "Returns the number of first uses of such rows in the first `slots` slots.")
        .def("misses", &Planner::misses, "i"_a, released(),
             "Returns the rows to read for mini-batch i, and their slots.")
        .def("slots", &Planner::slots, "i"_a)
        .def("miss_counts", &Planner::miss_counts)
        .def("copy_misses", &Planner::copy_misses, "to"_a, released())
        .def("sampled_misses", &Planner::sampled_misses, "region_rows"_a, "every"_a, released())
        .def("list_bytes", &Planner::list_bytes, "i"_a)
        .def(
            "write_lists",
            [](const Planner& self, size_t begin, std::span<std::byte> room) {
                std::vector<i64> sizes;
                std::vector<u64> digests;
                for (; begin < self.batches() && self.list_bytes(begin) <= room.size(); ++begin) {
                    digests.push_back(self.write_list(begin, room));
                    sizes.push_back(static_cast<i64>(self.list_bytes(begin)));
                    room = room.subspan(static_cast<size_t>(sizes.back()));
                }
                return std::tuple(begin, std::move(sizes), std::move(digests));
            },
            "begin"_a, "to"_a, released(),
            "Writes the address lists from `begin` on that fit; returns (next list, bytes of each, XXH3 of each).")
        .def("clear",
             [](Planner& self) {
                 self.clear();
                 self.hold({});
             })
        .def_prop_ro("hits", &Planner::hits)
        .def_prop_ro("carried", &Planner::carried)
        .def_static("bytes", &SlotPlanner::bytes, "slots"_a, "batches"_a, "accesses"_a, "threads"_a = 1);
}

void bind_demand(nb::module_& m) {
    nb::class_<DemandCache>(m, "DemandCache", "Slots of a cache that inserts every missed row; holds no rows itself.")
        .def_static(
            "make",
            [](const std::string& policy, u32 num_rows, u32 capacity) {
                return DemandCache::make(policy, num_rows, capacity).release();
            },
            "policy"_a, "num_rows"_a, "capacity"_a, nb::rv_policy::take_ownership, released())
        .def_static(
            "bytes",
            [](const std::string& policy) {
                const auto [slot_bytes, row_bytes] = DemandCache::bytes(policy);
                return std::tuple(slot_bytes, row_bytes);
            },
            "policy"_a, "Returns the bytes of a slot, and of a row of the table.")
        .def("look_up", &DemandCache::look_up, "rows"_a, released(),
             "Returns (hits, hit_slots, misses, admitted, into).");
}

}  // namespace

void bind_cache(nb::module_& m) {
    bind_buffers(m);
    bind_planners(m);
    bind_demand(m);
    m.def("dense_rows", &dense_rows, "ids"_a, "num_nodes"_a, released(),
          "Returns the ids relabelled in the order of their first occurrence, and the number of distinct ids.");
    m.def(
        "policy_misses",
        [](const std::string& policy, std::span<const u32> rows, Ids begins, u32 num_rows, Ids sizes,
           unsigned threads) { return policy_misses(policy, {rows, begins, num_rows}, sizes, threads); },
        "policy"_a, "rows"_a, "begins"_a, "num_rows"_a, "sizes"_a, "threads"_a, released());
}

}  // namespace outcore
