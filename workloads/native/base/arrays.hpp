// How the bindings of both layers take and hand out arrays.
//
// Functions that are bound as they are take a span or a table and return vectors. A span of const elements may lie in a
// copy that nanobind made to fit the type, which lives as long as the call; a span that is written to is the caller's own
// memory, or a TypeError: never a copy whose contents are lost. An array that native code uses after the call has
// returned is held by the object that uses it (`Holding`).
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/detail/nb_list.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <array>
#include <cerrno>
#include <initializer_list>
#include <string>
#include <system_error>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/scratch.hpp"
#include "base/types.hpp"

namespace outcore {

namespace nb = nanobind;
using nb::literals::operator""_a;

// Releases the GIL around a bound function, after its arguments are converted and before its result is.
using released = nb::call_guard<nb::gil_scoped_release>;

// An array that native code writes to.
template <class... Args>
struct Written : nb::ndarray<Args...> {
    using nb::ndarray<Args...>::ndarray;
    Written() = default;
    Written(nb::ndarray<Args...> array) : nb::ndarray<Args...>(std::move(array)) {}
};

template <class T, size_t Dim = 1>
using In = nb::ndarray<const T, nb::ndim<Dim>, nb::c_contig, nb::device::cpu>;
template <class T, size_t Dim = 1>
using Out = Written<T, nb::ndim<Dim>, nb::c_contig, nb::device::cpu>;
using OutBytes = Out<u8>;

// Arrays to hold: the type by which nanobind passes the owner of a span.
template <class T>
std::span<const T> span_of(const In<T>& array) {
    return {array.data(), array.size()};
}
template <class T>
std::span<T> span_of(const Out<T>& array) {
    return {array.data(), array.size()};
}
inline std::span<std::byte> bytes_of(const OutBytes& memory) {
    return {reinterpret_cast<std::byte*>(memory.data()), memory.size()};
}

// A native object and the arrays whose memory it keeps using. They are held as nanobind passed them, so that converted
// copies stay alive too, which nb::keep_alive would not keep; they are destroyed after the object.
template <class... Arrays>
struct Held {
    std::tuple<Arrays...> arrays;
};
template <class Native, class... Arrays>
class Holding : Held<Arrays...>, public Native {
public:
    template <class... Args>
    explicit Holding(std::tuple<Arrays...> arrays, Args&&... args)
        : Held<Arrays...>{std::move(arrays)}, Native(std::forward<Args>(args)...) {}
    Holding(const Holding&) = delete;

    // Replaces the held arrays; the object must no longer point into the old ones.
    void hold(Arrays... arrays) { this->arrays = {std::move(arrays)...}; }
};

// Hands memory to numpy without a copy.
template <class T, size_t Dim = 1>
using Numpy = nb::ndarray<nb::numpy, T, nb::ndim<Dim>>;
template <class T>
Numpy<T> to_numpy(std::vector<T> values) {
    auto* kept = new std::vector<T>(std::move(values));
    const nb::capsule owner(kept, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
    return {kept->data(), {kept->size()}, owner};
}
template <class T, size_t Dim = 1>
Numpy<T, Dim> to_numpy(Buffer<T> buffer, std::array<size_t, Dim> shape) {
    T* data = buffer.data.release();
    const nb::capsule owner(data, [](void* memory) noexcept { delete[] static_cast<T*>(memory); });
    return {data, Dim, shape.data(), owner};
}
template <class T>
Numpy<T> to_numpy(Buffer<T> buffer) {
    const size_t size = buffer.size;
    return to_numpy<T, 1>(std::move(buffer), {size});
}

// Runs `call` without the GIL.
template <class Call>
auto unlocked(Call&& call) {
    const nb::gil_scoped_release release;
    return call();
}

// Runs `call` and turns a failed system call into OSError with errno and path, as Python's own open raises it.
template <class Call>
decltype(auto) with_path(const std::string& path, Call&& call) {
    try {
        return call();
    } catch (const std::system_error& error) {
        const nb::gil_scoped_acquire acquire;
        errno = error.code().value();
        PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
        throw nb::python_error();
    }
}

// Returns a dict of named numbers.
inline nb::dict as_dict(std::initializer_list<std::pair<const char*, u64>> numbers) {
    nb::dict result;
    for (const auto& [name, number] : numbers) result[name] = number;
    return result;
}

}  // namespace outcore

namespace nanobind::detail {

template <class... Args>
struct type_caster<outcore::Written<Args...>> {
    using Base = make_caster<ndarray<Args...>>;
    NB_TYPE_CASTER(outcore::Written<Args...>, Base::Name)

    bool from_python(handle src, uint32_t flags, cleanup_list* cleanup) noexcept {
        Base base;
        if (!base.from_python(src, flags & ~static_cast<uint32_t>(cast_flags::convert), cleanup)) return false;
        value = std::move(base.value);
        return true;
    }
};

// Arguments that point into an array, which the caster holds until the call is over.
template <class View, class Array>
struct view_caster {
    static constexpr auto Name = make_caster<Array>::Name;
    template <class>
    using Cast = View;
    template <class>
    static constexpr bool can_cast() {
        return true;
    }
    bool from_python(handle src, uint32_t flags, cleanup_list* cleanup) noexcept {
        return base.from_python(src, flags, cleanup);
    }

    make_caster<Array> base;
};

template <class T>
using array_element =
    std::conditional_t<std::is_same_v<std::remove_const_t<T>, std::byte>, std::uint8_t, std::remove_const_t<T>>;
template <class T, std::size_t Dim>
using array_of =
    std::conditional_t<std::is_const_v<T>, outcore::In<array_element<T>, Dim>, outcore::Out<array_element<T>, Dim>>;

template <class T>
struct type_caster<std::span<T>> : view_caster<std::span<T>, array_of<T, 1>> {
    operator std::span<T>() const { return {reinterpret_cast<T*>(this->base.value.data()), this->base.value.size()}; }
};

template <class Byte>
struct type_caster<outcore::RowsOf<Byte>> : view_caster<outcore::RowsOf<Byte>, array_of<Byte, 2>> {
    operator outcore::RowsOf<Byte>() const {
        const auto& array = this->base.value;
        return {reinterpret_cast<Byte*>(array.data()), array.shape(0), array.shape(1)};
    }
};

// A vector of numbers comes from any sequence and goes out as an array.
template <class T>
    requires(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>)
struct type_caster<std::vector<T>> : list_caster<std::vector<T>, T> {
    using Sequence = list_caster<std::vector<T>, T>;
    using Array = make_caster<outcore::Numpy<T>>;
    static constexpr auto Name = const_name("@collections.abc.Sequence[") + make_caster<T>::Name + const_name("]@") +
                                 Array::Name + const_name('@');

    static handle from_cpp(std::vector<T> values, rv_policy, cleanup_list* cleanup) noexcept {
        return Array::from_cpp(outcore::to_numpy(std::move(values)), rv_policy::automatic, cleanup);
    }
};

// Results with `fields` members become tuples.
template <class T, int fields>
struct tuple_of_fields {
    static auto split(T value) {
        if constexpr (fields == 2) {
            auto& [a, b] = value;
            return std::tuple(std::move(a), std::move(b));
        } else if constexpr (fields == 3) {
            auto& [a, b, c] = value;
            return std::tuple(std::move(a), std::move(b), std::move(c));
        } else if constexpr (fields == 4) {
            auto& [a, b, c, d] = value;
            return std::tuple(std::move(a), std::move(b), std::move(c), std::move(d));
        } else {
            auto& [a, b, c, d, e] = value;
            return std::tuple(std::move(a), std::move(b), std::move(c), std::move(d), std::move(e));
        }
    }
    using Tuple = make_caster<decltype(split(std::declval<T>()))>;
    static constexpr auto Name = Tuple::Name;

    static handle from_cpp(T value, rv_policy policy, cleanup_list* cleanup) noexcept {
        return Tuple::from_cpp(split(std::move(value)), policy, cleanup);
    }
};

// Results that an overload of `dict_of` gives names.
template <class T>
    requires requires(const T& value) { dict_of(value); }
struct type_caster<T> {
    static constexpr auto Name = const_name("dict[str, typing.Any]");

    static handle from_cpp(const T& value, rv_policy, cleanup_list*) noexcept { return dict_of(value).release(); }
};

}  // namespace nanobind::detail

// Makes results of outcore::Type, which has so many fields, tuples.
#define OUTCORE_TUPLE(Type, fields) \
    template <>                     \
    struct nanobind::detail::type_caster<outcore::Type> : tuple_of_fields<outcore::Type, fields> {};
