// Bindings of the reader, the range queue and copies of rows; `systems/engine/io/reader.py` adds types and errors.
#include <nanobind/stl/pair.h>

#include <list>

#include "io/range_queue.hpp"
#include "read/bind_counts.hpp"
#include "read/gather.hpp"
#include "read/reader.hpp"

OUTCORE_TUPLE(ReadResult, 2)
OUTCORE_TUPLE(RangeQueue::Arrival, 2)

namespace outcore {
namespace {

// Group read with its staging buffer, which it writes to until it is closed.
using Staged = Holding<GroupRead, OutBytes>;

nb::object next_group(Staged& self) {
    GroupRead::Group group{};
    std::vector<i64> positions;
    const auto state = unlocked([&] {
        const auto found = self.next(group);
        for (const RowRef& row : group.rows) positions.push_back(row.position);
        return found;
    });
    switch (state) {
        case GroupRead::State::group: return nb::make_tuple(group.slice, std::move(positions));
        case GroupRead::State::failed: return nb::str("failed");
        case GroupRead::State::starved: return nb::str("starved");
        default: return nb::none();
    }
}

// Range queue with the memory of all ranges whose tickets have not been waited for.
class HeldQueue {
public:
    HeldQueue(const std::string& path, const RangeQueueOptions& options) : queue_(path, options) {}

    RangeQueue::Ticket submit(u64 offset, u64 need, const OutBytes& out) {
        held_.push_back({0, out});  // before the queue writes to it
        try {
            return held_.back().ticket = queue_.submit(offset, need, bytes_of(out));
        } catch (...) {
            held_.pop_back();
            throw;
        }
    }

    // `wait` and `close` are called with the GIL and release it while they wait.
    RangeQueue::Arrival wait(RangeQueue::Ticket ticket) {
        const auto arrival = unlocked([&] { return queue_.wait(ticket); });
        held_.remove_if([&](const Held& one) { return one.ticket == ticket; });
        return arrival;
    }
    void close() {
        unlocked([&] { queue_.close(); });
        held_.clear();
    }

    const std::string& mode() const { return queue_.mode(); }
    u32 block_bytes() const { return queue_.block_bytes(); }

private:
    struct Held {
        RangeQueue::Ticket ticket;
        OutBytes memory;
    };
    std::list<Held> held_;
    RangeQueue queue_;  // last member: destroyed before the memory
};

void bind_readers(nb::module_& m) {
    nb::class_<Reader>(m, "Reader", "Reads rows of a table file, or ranges of it, with direct I/O.")
        .def(
            "__init__",
            [](Reader* self, const std::string& path, u64 data_offset, u64 num_rows, u64 row_bytes, u32 depth,
               u32 granularity, bool merge, u64 max_request_bytes, u64 merge_gap_bytes, const std::string& mode,
               u32 threads, bool register_buffers, u64 buffer_bytes) {
                const MergeRule rule{merge, max_request_bytes, merge_gap_bytes};
                const ReaderOptions options{
                    data_offset,           num_rows,         row_bytes, depth,       granularity, rule,
                    IoChoice::named(mode), register_buffers, threads,   buffer_bytes};
                with_path(path, [&] { new (self) Reader(path, options); });
            },
            "path"_a, nb::kw_only(), "data_offset"_a, "num_rows"_a, "row_bytes"_a, "depth"_a, "granularity"_a,
            "merge"_a, "max_request_bytes"_a, "merge_gap_bytes"_a, "mode"_a, "threads"_a, "register_buffers"_a,
            "buffer_bytes"_a)
        .def_prop_ro("mode", &Reader::mode)
        .def_prop_ro("memory_bytes", &Reader::memory_bytes)
        .def_prop_ro("block_bytes", [](const Reader& self) { return self.layout().block_bytes; })
        .def(
            "read",
            [](Reader& self, Ids ids, OutTable out, const std::optional<In<i64>>& out_rows) {
                if (out.row_bytes != self.layout().row_bytes)
                    throw std::invalid_argument("out's rows have another size than the file's");
                return self.read(ids, out, out_rows ? span_of(*out_rows) : Ids{});
            },
            "ids"_a, "out"_a, "out_rows"_a.none(), released(),
            "Reads row ids[i] into out[out_rows[i]], or out[i]; returns (counts, failure).")
        .def("counts_of", &Reader::counts_of, "ids"_a, released(),
             "Counts the requests and bytes of a read of these ids.")
        .def("read_range", &Reader::read_range, "offset"_a, "out"_a, "request_bytes"_a, released())
        .def("read_ranges", &Reader::read_ranges, "offsets"_a, "sizes"_a, "positions"_a, "out"_a, "request_bytes"_a,
             released());

    nb::class_<Staged>(m, "GroupRead", "Reads rows into a bounded staging buffer and hands them over group by group.")
        .def(
            "__init__",
            [](Staged* self, Reader& reader, Ids ids, const OutBytes& staging, u32 group_rows, bool own_slices) {
                new (self) Staged({staging}, reader, ids, bytes_of(staging), group_rows, own_slices);
            },
            "reader"_a, "ids"_a, "staging"_a, "group_rows"_a, "own_slices"_a = true, nb::keep_alive<1, 2>())
        .def("next", &next_group,
             nb::sig("def next(self) -> tuple[int, numpy.typing.NDArray[numpy.int64]] | str | None"),
             "Returns (slice, positions) of a group, None at the end, or a str: \"starved\" | \"failed\".")
        .def("give_back", &Staged::give_back, "slice"_a)
        .def("close", &Staged::close, released())
        .def_prop_ro("counts", &Staged::counts)
        .def_prop_ro("failure", &Staged::failure);

    nb::class_<HeldQueue>(m, "RangeQueue", "Queue of file ranges, read in order in large direct requests.")
        .def(
            "__init__",
            [](HeldQueue* self, const std::string& path, u32 depth, u32 request_bytes, const std::string& mode) {
                const RangeQueueOptions options{depth, request_bytes, IoChoice::named(mode)};
                with_path(path, [&] { new (self) HeldQueue(path, options); });
            },
            "path"_a, nb::kw_only(), "depth"_a, "request_bytes"_a, "mode"_a)
        .def_prop_ro("mode", &HeldQueue::mode)
        .def_prop_ro("block_bytes", &HeldQueue::block_bytes)
        .def("submit", &HeldQueue::submit, "offset"_a, "need"_a, "out"_a,
             "Holds the memory of `out` until its ticket is waited for or the queue is closed.")
        .def("wait", &HeldQueue::wait, "ticket"_a, "Returns (failure, seconds on the monotonic clock).")
        .def("close", &HeldQueue::close);
}

}  // namespace

void bind_read(nb::module_& m) {
    bind_readers(m);
    m.def(
        "reader_buffer_bytes",
        [](u64 data_offset, u64 row_bytes, u32 block_bytes, u64 max_request_bytes, u32 depth) {
            check_table(data_offset, 0, row_bytes);
            if (block_bytes == 0) throw std::invalid_argument("block_bytes must be positive");
            const u64 covering = ReadPlan::covering_bytes({data_offset, 0, row_bytes, 0, block_bytes});
            return up_to(Reader::default_buffer_bytes(covering, max_request_bytes, depth, block_bytes), 4096);
        },
        "data_offset"_a, "row_bytes"_a, "block_bytes"_a, "max_request_bytes"_a, "depth"_a);
    m.def(
        "block_bytes",
        [](const std::string& path) { return with_path(path, [&] { return DirectFile(path).block_bytes(); }); },
        "path"_a);
    m.def("plan_bytes", &ReadPlan::bytes, "num_ids"_a);
    m.def(
        "plan_reads",
        [](Ids ids, u64 data_offset, u64 num_rows, u64 row_bytes, u64 file_bytes, u32 block_bytes, bool merge,
           u64 max_request_bytes, u64 merge_gap_bytes) {
            check_table(data_offset, num_rows, row_bytes);
            if (block_bytes == 0) throw std::invalid_argument("block_bytes must be positive");
            ReadPlan plan;
            const u64 longest = std::clamp<u64>(max_request_bytes / block_bytes * block_bytes, block_bytes, 1U << 30);
            plan.build(ids, {data_offset, num_rows, row_bytes, file_bytes, block_bytes},
                       {merge, longest, merge_gap_bytes});
            return plan.counts();
        },
        "ids"_a, nb::kw_only(), "data_offset"_a, "num_rows"_a, "row_bytes"_a, "file_bytes"_a, "block_bytes"_a,
        "merge"_a, "max_request_bytes"_a, "merge_gap_bytes"_a, released());
    m.def("gather", &gather, "table"_a, "rows"_a, "out"_a, "threads"_a, "in_order"_a = false, released());
    m.def("scatter", &scatter, "source"_a, "from_rows"_a, "target"_a, "to_rows"_a, "threads"_a, released());
    m.def("split_rows", &split_rows, "source"_a, "to_rows"_a, "begin"_a, "on_device"_a, "host"_a, "staging"_a,
          released());
}

}  // namespace outcore
