// Bindings of the shared staging buffer's bookkeeping; `systems/gnndrive/shared_staging.py` turns states into errors.
#include "bind.hpp"
#include "segment_pool.hpp"

namespace outcore {
namespace {

// Segment pool with the shared memory that it lies in.
using Pool = Holding<SegmentPool, FlatBytes>;

}  // namespace

void bind_segment_pool(nb::module_& m) {
    nb::class_<Pool>(m, "SegmentPool")
        .def("__init__",
             [](Pool* self, std::uint32_t parties, std::uint32_t portion, std::uint32_t segment_rows,
                const FlatBytes& memory, bool create) {
                 new (self) Pool([&] { return SegmentPool(parties, portion, segment_rows, bytes_of(memory), create); }, memory);
             },
             nb::arg("parties"), nb::arg("portion"), nb::arg("segment_rows"), nb::arg("memory"), nb::arg("create"))
        .def_static("bytes", &SegmentPool::bytes, nb::arg("parties"), nb::arg("portion"), nb::arg("segment_rows"))
        // Returns the segment, -1 where none is available now, -2 where the pool is closed.
        .def("acquire",
             [](Pool& self, std::uint32_t party, bool borrow, bool block) -> std::int64_t {
                 const nb::gil_scoped_release release;
                 std::uint32_t segment = 0;
                 switch (self->acquire(party, borrow, block, segment)) {
                     case SegmentPool::State::ok: return segment;
                     case SegmentPool::State::none: return -1;
                     default: return -2;
                 }
             },
             nb::arg("party"), nb::arg("borrow"), nb::arg("block"))
        .def("release", [](Pool& self, std::uint32_t party, std::uint32_t segment) { self->release(party, segment); },
             nb::arg("party"), nb::arg("segment"), nb::call_guard<nb::gil_scoped_release>())
        .def("publish",
             [](Pool& self, std::uint32_t segment, const Ids& nodes) {
                 const nb::gil_scoped_release release;
                 self->publish(segment, span_of(nodes));
             },
             nb::arg("segment"), nb::arg("nodes"))
        .def("present",
             [](Pool& self, const Ids& nodes) {
                 std::vector<std::int64_t> positions;
                 {
                     const nb::gil_scoped_release release;
                     positions = self->present(span_of(nodes));
                 }
                 return to_numpy(std::move(positions));
             },
             nb::arg("nodes"))
        .def("fetch",
             [](Pool& self, std::uint32_t party, std::uint32_t segment, const Ids& nodes,
                const FlatBytes& staging, std::uint64_t row_bytes) {
                 std::vector<std::int64_t> positions;
                 {
                     const nb::gil_scoped_release release;
                     positions = self->fetch(party, segment, span_of(nodes), bytes_of(staging), row_bytes);
                 }
                 return to_numpy(std::move(positions));
             },
             nb::arg("party"), nb::arg("segment"), nb::arg("nodes"), nb::arg("staging"), nb::arg("row_bytes"))
        .def("close", [](Pool& self) { self->close(); }, nb::call_guard<nb::gil_scoped_release>())
        // Returns (borrowed segments, rows found).
        .def("counts",
             [](Pool& self, std::uint32_t party) {
                 const SegmentCounts counts = self->counts(party);
                 return nb::make_tuple(counts.borrowed, counts.found);
             },
             nb::arg("party"));
}

}  // namespace outcore
