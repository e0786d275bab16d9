// Bindings of gather and of the page cache.
#include <nanobind/stl/string.h>

#include <system_error>

#include "bind.hpp"
#include "gather.hpp"
#include "page_cache.hpp"

namespace outcore {
namespace {

// Runs `call` without the GIL; a failed system call becomes OSError.
template <class Call>
auto with_os_error(const std::string& path, Call&& call) {
    try {
        const nb::gil_scoped_release release;
        return call();
    } catch (const std::system_error& error) {
        errno = error.code().value();
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
        throw nb::python_error();
    }
}

}  // namespace

void bind_memory(nb::module_& m) {
    m.def(
        "gather",
        [](const ReadOnlyBytes& table, const Ids& rows, const Bytes& out, unsigned threads, bool in_order) {
            if (out.shape(1) != table.shape(1)) throw std::invalid_argument("out's rows have another size than the table's");
            if (out.shape(0) < rows.size()) throw std::out_of_range("out has fewer rows than asked for");
            const nb::gil_scoped_release release;
            const Table source{reinterpret_cast<const std::byte*>(table.data()), table.shape(0), table.shape(1)};
            return gather(source, span_of(rows), reinterpret_cast<std::byte*>(out.data()), threads, in_order);
        },
        nb::arg("table"), nb::arg("rows"), nb::arg("out"), nb::arg("threads"), nb::arg("in_order") = false);
    m.def(
        "resident_bytes", [](const std::string& path) { return with_os_error(path, [&] { return resident_bytes(path); }); },
        nb::arg("path"));
    m.def(
        "evict", [](const std::string& path) { return with_os_error(path, [&] { return evict(path); }); }, nb::arg("path"));
    m.def(
        "advise",
        [](const In<std::uint8_t>& data, int advice) {
            with_os_error("madvise", [&] {
                advise(data.data(), data.size(), advice);
                return 0;
            });
        },
        nb::arg("data").noconvert(), nb::arg("advice"));
}

}  // namespace outcore
