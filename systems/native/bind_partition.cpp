// Python bindings of the partition kernels.
#include "bind.hpp"
#include "partition.hpp"

namespace outcore {
namespace {

using Words = Written<std::uint64_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

template <class Id>
CscView<Id> graph_of(const Ids& indptr, const In<Id>& indices, const Words& members) {
    if (indptr.size() == 0) throw std::invalid_argument("indptr is empty");
    if (indptr.size() - 1 > (std::uint64_t{1} << 32)) throw std::invalid_argument("more than 2^32 nodes");
    if (members.shape(0) == 0) throw std::invalid_argument("there are no partitions");
    if (members.shape(1) * 64 < indptr.size() - 1) throw std::out_of_range("members has too few words");
    return {span_of(indptr), std::span<const Id>(indices.data(), indices.size())};
}

Members members_of(const Words& words) { return {std::span<std::uint64_t>(words.data(), words.size()), words.shape(1)}; }

template <class Id>
void bind_graph(nb::module_& m) {
    m.def(
        "partition_greedily",
        [](const Ids& indptr, const In<Id>& indices, const Ids& train, unsigned hops, const Ids& given, const Words& members,
           unsigned threads) {
            const auto graph = graph_of<Id>(indptr, indices, members);
            if (given.size() != 0 && given.size() != train.size()) throw std::out_of_range("given has another size");
            std::vector<std::int64_t> result;
            {
                const nb::gil_scoped_release release;
                result = partition_greedily(graph, span_of(train), hops, members.shape(0), span_of(given),
                                            members_of(members), threads);
            }
            return to_numpy(std::move(result));
        },
        nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("train").noconvert(), nb::arg("hops"),
        nb::arg("given").noconvert(), nb::arg("members").noconvert(), nb::arg("threads"));
    m.def(
        "count_accesses",
        [](const Ids& indptr, const In<Id>& indices, const Ids& train, const Ids& partition_of, unsigned hops,
           const Words& members, unsigned threads) {
            const auto graph = graph_of<Id>(indptr, indices, members);
            if (partition_of.size() != train.size()) throw std::out_of_range("partition_of has another size");
            Accesses counts;
            {
                const nb::gil_scoped_release release;
                counts = count_accesses(graph, span_of(train), span_of(partition_of), hops, members_of(members), threads);
            }
            return nb::make_tuple(counts.all, counts.outside);
        },
        nb::arg("indptr").noconvert(), nb::arg("indices").noconvert(), nb::arg("train").noconvert(),
        nb::arg("partition_of").noconvert(), nb::arg("hops"), nb::arg("members").noconvert(), nb::arg("threads"));
}

}  // namespace

void bind_partition(nb::module_& m) {
    bind_graph<std::int32_t>(m);
    bind_graph<std::int64_t>(m);
}

}  // namespace outcore
