// Bindings of out-of-core sampling; `systems/engine/passes/` adds the types.
#include "read/bind_counts.hpp"
#include "sampling/external_sampler.hpp"

OUTCORE_TUPLE(ExternalFailure, 3)

namespace outcore {

void bind_external(nb::module_& m) {
    nb::class_<ExternalSampler>(m, "ExternalSampler",
                                "Samples many mini-batches at once in passes over the graph's files.")
        .def(
            "__init__",
            [](ExternalSampler* self, const std::string& indptr, u64 indptr_offset, const std::string& indices,
               u64 indices_offset, u64 num_nodes, u64 num_edges, u32 index_bytes, const std::vector<i64>& fanout,
               u64 seed, bool replace, u64 gap_bytes, u32 piece_bytes, u32 pieces, u32 depth, u32 group_nodes,
               u32 threads, const std::string& mode, bool whole) {
                const GraphFile pointers{indptr, indptr_offset, 8, num_nodes + 1};
                const GraphFile edges{indices, indices_offset, index_bytes, num_edges};
                const ExternalOptions options{fanout, seed,  replace,     gap_bytes, piece_bytes,
                                              pieces, depth, group_nodes, threads,   IoChoice::named(mode),
                                              whole};
                with_path(indptr, [&] { new (self) ExternalSampler(pointers, edges, options); });
            },
            nb::kw_only(), "indptr"_a, "indptr_offset"_a, "indices"_a, "indices_offset"_a, "num_nodes"_a, "num_edges"_a,
            "index_bytes"_a, "fanout"_a, "seed"_a, "replace"_a, "gap_bytes"_a, "piece_bytes"_a, "pieces"_a, "depth"_a,
            "group_nodes"_a, "threads"_a, "mode"_a, "whole"_a = false)
        .def("begin", &ExternalSampler::begin, "epoch"_a, "numbers"_a, "seeds"_a, "offsets"_a)
        .def("pass_over", &ExternalSampler::pass, released())
        .def("finish", &ExternalSampler::finish)
        .def("forget", &ExternalSampler::forget)
        .def(
            "lay_out",
            [](ExternalSampler& self, size_t begin, Ids labels, Ids offsets, std::span<std::byte> to,
               const std::optional<Out<u32>>& nodes) {
                std::optional<std::span<u32>> places;
                if (nodes) places = span_of(*nodes);
                std::vector<i64> sizes;
                for (const auto& made : self.lay_out(begin, labels, offsets, to, places))
                    for (const auto size : {made.head_bytes, made.body_bytes, made.nodes})
                        sizes.push_back(static_cast<i64>(size));
                return sizes;
            },
            "begin"_a, "labels"_a, "offsets"_a, "to"_a, "nodes"_a.none(), released(),
            "Returns, for each mini-batch laid out, head bytes, body bytes and nodes, as flat int64.")
        .def(
            "needs",
            [](const ExternalSampler& self, size_t i, u64 labels) {
                const LaidOut made = self.laid_out(i, labels);
                return std::tuple(made.bytes, made.nodes);
            },
            "i"_a, "labels"_a)
        .def("stop", &ExternalSampler::stop)
        .def_prop_ro("memory_bytes", &ExternalSampler::memory_bytes)
        .def("reads", &ExternalSampler::reads);
}

}  // namespace outcore
