// Bindings of the feature buffer; `systems/engine/feature_buffer.py` turns states into errors.
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

}  // namespace

void bind_feature_buffer(nb::module_& m) {
    nb::class_<FeatureBuffer>(m, "FeatureBuffer")
        .def(nb::init<std::uint32_t>(), nb::arg("num_slots"))
        // Over memory that processes share; it is kept alive.
        .def("__init__",
             [](FeatureBuffer* self, std::uint32_t num_slots, const FlatBytes& memory, bool create) {
                 const std::span bytes(reinterpret_cast<std::byte*>(memory.data()), memory.size());
                 new (self) FeatureBuffer(num_slots, bytes, create);
             },
             nb::arg("num_slots"), nb::arg("memory"), nb::arg("create"), nb::keep_alive<1, 3>())
        .def_prop_ro("num_slots", &FeatureBuffer::num_slots)
        .def_static("bytes", &FeatureBuffer::bytes, nb::arg("num_slots"))
        // (state, unique rows, alias, load, waiting)
        .def("acquire",
             [](FeatureBuffer& self, const Ids& ids, double timeout_s) {
                 Acquired result;
                 std::uint64_t needed = 0;
                 BufferState state{};
                 {
                     const nb::gil_scoped_release release;
                     state = self.acquire(span_of(ids), timeout_s, result, needed);
                 }
                 return nb::make_tuple(name_of(state), needed, to_numpy(std::move(result.alias)),
                                       to_numpy(std::move(result.load)), to_numpy(std::move(result.waiting)));
             },
             nb::arg("ids"), nb::arg("timeout_s"))
        .def("publish",
             [](FeatureBuffer& self, const Ids& slots) {
                 const nb::gil_scoped_release release;
                 self.publish(span_of(slots));
             },
             nb::arg("slots"))
        .def("fail",
             [](FeatureBuffer& self, const Ids& slots, const std::string& error) {
                 const nb::gil_scoped_release release;
                 self.fail(span_of(slots), error);
             },
             nb::arg("slots"), nb::arg("error"))
        // (state, error)
        .def("wait",
             [](FeatureBuffer& self, const Ids& slots, double timeout_s) {
                 std::string error;
                 BufferState state{};
                 {
                     const nb::gil_scoped_release release;
                     state = self.wait(span_of(slots), timeout_s, error);
                 }
                 return nb::make_tuple(name_of(state), error);
             },
             nb::arg("slots"), nb::arg("timeout_s"))
        .def("release",
             [](FeatureBuffer& self, const Ids& slots) {
                 const nb::gil_scoped_release release;
                 self.release(span_of(slots));
             },
             nb::arg("slots"))
        .def("slots_of",
             [](FeatureBuffer& self, const Ids& ids) {
                 std::vector<std::int64_t> slots;
                 {
                     const nb::gil_scoped_release release;
                     slots = self.slots_of(span_of(ids));
                 }
                 return to_numpy(std::move(slots));
             },
             nb::arg("ids"))
        .def("close", &FeatureBuffer::close, nb::call_guard<nb::gil_scoped_release>())
        .def_prop_ro("standby", &FeatureBuffer::standby)
        .def_prop_ro("counts", [](FeatureBuffer& self) {
            const BufferCounts counts = self.counts();
            nb::dict result;
            result["hits"] = counts.hits;
            result["shared"] = counts.shared;
            result["misses"] = counts.misses;
            result["evictions"] = counts.evictions;
            return result;
        });
}

}  // namespace outcore
