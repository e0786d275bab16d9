// Shared parts of the stub drivers that tests build as libcuda.so.1 and libnvidia-ml.so.1. Environment variables set:
// STUB_DEVICES (devices of the host, 1), STUB_MIG (index of the device that is cut in two slices, none), STUB_ORDER
// (`2,0,1`: NVML's indices in CUDA's order), STUB_FAIL (`cuInit=100,nvmlInit=9`: functions that fail, with their codes),
// STUB_LOG (file that gets a line for each call).
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

namespace stub {

inline constexpr int slices = 2;

inline int number(const char* variable, int otherwise) {
    const char* text = std::getenv(variable);
    return text != nullptr && *text != '\0' ? std::atoi(text) : otherwise;
}

inline int devices() { return number("STUB_DEVICES", 1); }
inline int cut_device() { return number("STUB_MIG", -1); }

// The parts of a list that is separated by commas.
inline std::vector<std::string> parts(const char* text) {
    std::vector<std::string> found;
    std::istringstream stream(text);
    for (std::string part; std::getline(stream, part, ',');) found.push_back(part);
    return found;
}

// Writes the call to the log; returns the code with which the function fails, or 0.
inline int call(const char* name, unsigned long long value = 0) {
    if (const char* path = std::getenv("STUB_LOG")) {
        if (FILE* log = std::fopen(path, "a")) {
            std::fprintf(log, "%s %llu\n", name, value);
            std::fclose(log);
        }
    }
    const char* failing = std::getenv("STUB_FAIL");
    for (const std::string& part : parts(failing != nullptr ? failing : "")) {
        if (part.rfind(std::string(name) + "=", 0) == 0) return std::atoi(part.c_str() + std::strlen(name) + 1);
    }
    return 0;
}

// A device by NVML's index, or one of its slices.
struct Place {
    int device, slice = -1;
};

// The sixteen bytes of a UUID: the last one is the device's number, or for a slice 16 (device + 1) + slice.
inline void uuid_bytes(Place place, unsigned char* bytes) {
    std::memset(bytes, 0xab, 16);
    bytes[15] = static_cast<unsigned char>(place.slice < 0 ? place.device : 16 * (place.device + 1) + place.slice);
}

inline std::string uuid_text(Place place) {
    unsigned char bytes[16];
    uuid_bytes(place, bytes);
    std::string text = place.slice < 0 ? "GPU-" : "MIG-";
    char pair[3];
    for (int i = 0; i < 16; ++i) {
        std::snprintf(pair, sizeof pair, "%02x", bytes[i]);
        text += pair;
        if (i == 3 || i == 5 || i == 7 || i == 9) text += '-';
    }
    return text;
}

}  // namespace stub
