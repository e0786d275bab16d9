// Python bindings of systems._native: a bind_* function for each room, and for each kernel that needs no other.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace outcore {
void bind_page_cache(nb::module_& m);
void bind_requests(nb::module_& m);
void bind_read(nb::module_& m);
void bind_cache(nb::module_& m);
void bind_rank(nb::module_& m);
void bind_store(nb::module_& m);
void bind_minhash(nb::module_& m);
void bind_edges(nb::module_& m);
void bind_buckets(nb::module_& m);
void bind_external(nb::module_& m);
}  // namespace outcore

NB_MODULE(_native, m) {
    m.doc() =
        "Direct-I/O reader, gather, page cache, feature buffer, Belady changesets, cache policies, packing, rankings.";
    for (const auto bind : {outcore::bind_page_cache, outcore::bind_requests, outcore::bind_read, outcore::bind_cache,
                            outcore::bind_rank, outcore::bind_store, outcore::bind_minhash, outcore::bind_edges,
                            outcore::bind_buckets, outcore::bind_external})
        bind(m);
}
