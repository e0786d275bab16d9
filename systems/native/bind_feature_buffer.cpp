// Bindings of the feature buffer; `systems/gnndrive/feature_buffer.py` turns states into errors.
#include <nanobind/stl/string.h>

#include <string>

#include "bind.hpp"
#include "feature_buffer.hpp"

namespace outcore {
namespace {

const char* name_of(BufferState state) {
    switch (state) {
        case BufferState::ok: return "ok";
        case BufferState::timeout: return "timeout";
        case BufferState::closed: return "closed";
        case BufferState::too_small: return "too_small";
        case BufferState::failed: return "failed";
    }
    return "";
}

// Feature buffer with the shared memory that it lies in; no array where it owns its memory.
using Buffer = Holding<FeatureBuffer, FlatBytes>;

}  // namespace

void bind_feature_buffer(nb::module_& m) {
    nb::class_<Buffer>(m, "FeatureBuffer")
        .def(
            "__init__", [](Buffer* self, std::uint32_t num_slots) { new (self) Buffer([&] { return FeatureBuffer(num_slots); }, {}); },
            nb::arg("num_slots"))
        .def(
            "__init__",
            [](Buffer* self, std::uint32_t num_slots, const FlatBytes& memory, bool create) {
                new (self) Buffer([&] { return FeatureBuffer(num_slots, bytes_of(memory), create); }, memory);
            },
            nb::arg("num_slots"), nb::arg("memory"), nb::arg("create"))
        .def_prop_ro("num_slots", [](const Buffer& self) { return self->num_slots(); })
        .def_static("bytes", &FeatureBuffer::bytes, nb::arg("num_slots"))
        // Returns (state, unique rows, alias, load, waiting).
        .def("acquire",
             [](Buffer& self, const Ids& ids, double timeout_s) {
                 Acquired result;
                 std::uint64_t needed = 0;
                 BufferState state{};
                 {
                     const nb::gil_scoped_release release;
                     state = self->acquire(span_of(ids), timeout_s, result, needed);
                 }
                 return nb::make_tuple(name_of(state), needed, to_numpy(std::move(result.alias)),
                                       to_numpy(std::move(result.load)), to_numpy(std::move(result.waiting)));
             },
             nb::arg("ids"), nb::arg("timeout_s"))
        .def("publish",
             [](Buffer& self, const Ids& slots) {
                 const nb::gil_scoped_release release;
                 self->publish(span_of(slots));
             },
             nb::arg("slots"))
        .def("fail",
             [](Buffer& self, const Ids& slots, const std::string& error) {
                 const nb::gil_scoped_release release;
                 self->fail(span_of(slots), error);
             },
             nb::arg("slots"), nb::arg("error"))
        // Returns (state, error).
        .def("wait",
             [](Buffer& self, const Ids& slots, double timeout_s) {
                 std::string error;
                 BufferState state{};
                 {
                     const nb::gil_scoped_release release;
                     state = self->wait(span_of(slots), timeout_s, error);
                 }
                 return nb::make_tuple(name_of(state), error);
             },
             nb::arg("slots"), nb::arg("timeout_s"))
        .def("release",
             [](Buffer& self, const Ids& slots) {
                 const nb::gil_scoped_release release;
                 self->release(span_of(slots));
             },
             nb::arg("slots"))
        .def("slots_of",
             [](Buffer& self, const Ids& ids) {
                 std::vector<std::int64_t> slots;
                 {
                     const nb::gil_scoped_release release;
                     slots = self->slots_of(span_of(ids));
                 }
                 return to_numpy(std::move(slots));
             },
             nb::arg("ids"))
        .def("close", [](Buffer& self) { self->close(); }, nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("standby", [](Buffer& self) { return self->standby(); })
        .def_prop_ro("counts", [](Buffer& self) {
            const BufferCounts counts = self->counts();
            nb::dict result;
            result["hits"] = counts.hits;
            result["shared"] = counts.shared;
            result["misses"] = counts.misses;
            result["evictions"] = counts.evictions;
            return result;
        });
}

}  // namespace outcore
