// Bindings of the changeset planner, fed by `systems/engine/cache/changeset.py`, and of the row copies that apply changesets.
#include "bind.hpp"
#include "changeset.hpp"
#include "scatter.hpp"

namespace outcore {
namespace {

using IntsIn = In<std::int32_t>;

}  // namespace

void bind_changeset(nb::module_& m) {
    nb::class_<ChangesetPlanner>(m, "ChangesetPlanner")
        .def(
            "__init__",
            [](ChangesetPlanner* self, std::uint64_t num_nodes, std::uint64_t capacity, const Ids& batch_sizes,
               unsigned threads) {
                const nb::gil_scoped_release release;
                new (self) ChangesetPlanner(num_nodes, capacity, span_of(batch_sizes), threads);
            },
            nb::arg("num_nodes"), nb::arg("capacity"), nb::arg("batch_sizes"), nb::arg("threads"))
        .def(
            "look_back",
            [](ChangesetPlanner& self, std::uint32_t batch, const Ids& nodes) {
                const nb::gil_scoped_release release;
                self.look_back(batch, span_of(nodes));
            },
            nb::arg("batch"), nb::arg("nodes"))
        // Returns True once the cache is full or the last mini-batch is done.
        .def(
            "fill",
            [](ChangesetPlanner& self, std::uint32_t batch, const Ids& nodes) {
                const nb::gil_scoped_release release;
                return self.fill(batch, span_of(nodes));
            },
            nb::arg("batch"), nb::arg("nodes"))
        .def("begin", [](ChangesetPlanner& self) { self.begin(); }, nb::call_guard<nb::gil_scoped_release>())
        .def(
            "begin",
            [](ChangesetPlanner& self, const In<std::uint32_t>& resident) {
                const nb::gil_scoped_release release;
                self.begin(span_of(resident));
            },
            nb::arg("resident"))
        .def("held",
             [](const ChangesetPlanner& self, std::uint64_t begin, std::uint64_t end) {
                 return to_numpy(self.held(begin, end));
             },
             nb::arg("begin"), nb::arg("end"))
        // Returns (slots, in_positions, in_slots, hits, evictions).
        .def(
            "advance",
            [](ChangesetPlanner& self, std::uint32_t batch, const Ids& nodes) {
                Changeset found;
                {
                    const nb::gil_scoped_release release;
                    found = self.advance(batch, span_of(nodes));
                }
                return nb::make_tuple(to_numpy(std::move(found.slots)), to_numpy(std::move(found.in_positions)),
                                      to_numpy(std::move(found.in_slots)), found.hits, found.evictions);
            },
            nb::arg("batch"), nb::arg("nodes"))
        .def_prop_ro("filled", &ChangesetPlanner::filled)
        .def_prop_ro("memory_bytes", &ChangesetPlanner::memory_bytes)
        .def_static("bytes", &ChangesetPlanner::bytes, nb::arg("num_nodes"), nb::arg("capacity"), nb::arg("accesses"),
                    nb::arg("batches"));
    m.def(
        "scatter",
        [](const ReadOnlyBytes& source, const IntsIn& from, const Bytes& target, const IntsIn& to, unsigned threads) {
            if (source.shape(1) != target.shape(1)) throw std::invalid_argument("the tables have rows of different sizes");
            if (from.size() != to.size()) throw std::invalid_argument("as many rows to copy as places are wanted");
            bool sound = false;
            {
                const nb::gil_scoped_release release;
                const Table table{reinterpret_cast<const std::byte*>(source.data()), source.shape(0), source.shape(1)};
                sound = scatter(table, {from.data(), from.size()}, reinterpret_cast<std::byte*>(target.data()),
                                target.shape(0), {to.data(), to.size()}, threads);
            }
            if (!sound) throw std::out_of_range("a row that the table does not have");
        },
        nb::arg("source"), nb::arg("from_rows"), nb::arg("target"), nb::arg("to_rows"), nb::arg("threads"));
    m.def(
        "split_rows",
        [](const ReadOnlyBytes& source, const IntsIn& to, std::size_t begin, std::int32_t on_device, const Bytes& host, const Bytes& staging) {
            if (source.shape(1) != host.shape(1) || source.shape(1) != staging.shape(1))
                throw std::invalid_argument("the tables have rows of different sizes");
            std::vector<std::int64_t> staged;
            std::size_t end = 0;
            {
                const nb::gil_scoped_release release;
                staged.reserve(staging.shape(0));
                end = split_rows({reinterpret_cast<const std::byte*>(source.data()), source.shape(0), source.shape(1)},
                                 {to.data(), to.size()}, begin,
                                 {on_device, reinterpret_cast<std::byte*>(host.data()), host.shape(0),
                                  reinterpret_cast<std::byte*>(staging.data()), staging.shape(0)},
                                 staged);
            }
            return nb::make_tuple(end, to_numpy(std::move(staged)));
        },
        nb::arg("source"), nb::arg("to_rows"), nb::arg("begin"), nb::arg("on_device"), nb::arg("host"), nb::arg("staging"));
}

}  // namespace outcore
