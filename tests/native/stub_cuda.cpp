// Stub of the CUDA driver, for what the proof of the cap calls: memory that it allocates or registers is touched, so
// that it counts in the caller's cgroup as it does with the real driver.
#include <sys/mman.h>

#include <map>
#include <mutex>

#include "stub_driver.hpp"

namespace {

constexpr int out_of_memory = 2, no_device = 100, invalid_device = 101, registered = 712, not_registered = 713;

// The devices in CUDA's order, as CUDA_VISIBLE_DEVICES leaves them: numbers, and UUIDs or their beginnings, up to the
// first that names none. A device in slices is its first slice.
std::vector<stub::Place> visible() {
    std::vector<stub::Place> all;
    const char* order = std::getenv("STUB_ORDER");
    for (int i = 0; i < stub::devices(); ++i) all.push_back({i});
    if (order != nullptr) {
        all.clear();
        for (const std::string& part : stub::parts(order)) all.push_back({std::atoi(part.c_str())});
    }
    for (auto& place : all) place.slice = place.device == stub::cut_device() ? 0 : -1;
    const char* wanted = std::getenv("CUDA_VISIBLE_DEVICES");
    if (wanted == nullptr) return all;
    std::vector<stub::Place> named = all, found;
    for (int slice = 1; slice < stub::slices && stub::cut_device() >= 0; ++slice) {
        named.push_back({stub::cut_device(), slice});
    }
    for (const std::string& part : stub::parts(wanted)) {
        const size_t before = found.size();
        if (part.rfind("GPU-", 0) == 0 || part.rfind("MIG-", 0) == 0) {
            for (const auto place : named) {
                if (stub::uuid_text(place).rfind(part, 0) == 0) found.push_back(place);
                if (found.size() > before) break;
            }
        } else if (const int number = std::atoi(part.c_str()); number >= 0 && number < static_cast<int>(all.size())) {
            found.push_back(all[static_cast<size_t>(number)]);
        }
        if (found.size() == before) break;
    }
    return found;
}

std::mutex mutex;
std::map<void*, size_t> pinned;

void touch(void* start, size_t bytes) {
    auto* at = static_cast<volatile char*>(start);
    for (size_t offset = 0; offset < bytes; offset += 4096) at[offset] = at[offset];
}

int allocate(const char* name, void** memory, size_t bytes) {
    if (const int code = stub::call(name, bytes)) return code;
    void* made = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED) return out_of_memory;
    *memory = made;
    return 0;
}

}  // namespace

extern "C" {

struct CUuuid {
    unsigned char bytes[16];
};

int cuInit(unsigned) {
    if (const int code = stub::call("cuInit")) return code;
    return visible().empty() ? no_device : 0;
}

int cuDriverGetVersion(int* version) {
    *version = 13000;
    return stub::call("cuDriverGetVersion");
}

int cuDeviceGetCount(int* count) {
    *count = static_cast<int>(visible().size());
    return stub::call("cuDeviceGetCount");
}

int cuDeviceGet(int* device, int ordinal) {
    if (const int code = stub::call("cuDeviceGet", static_cast<unsigned>(ordinal))) return code;
    *device = ordinal;
    return ordinal >= 0 && ordinal < static_cast<int>(visible().size()) ? 0 : invalid_device;
}

// The first form knows no slices.
int cuDeviceGetUuid(CUuuid* uuid, int device) {
    stub::uuid_bytes({visible()[static_cast<size_t>(device)].device}, uuid->bytes);
    return stub::call("cuDeviceGetUuid", static_cast<unsigned>(device));
}

int cuDeviceGetUuid_v2(CUuuid* uuid, int device) {
    stub::uuid_bytes(visible()[static_cast<size_t>(device)], uuid->bytes);
    return stub::call("cuDeviceGetUuid_v2", static_cast<unsigned>(device));
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
    *context = context;
    return stub::call("cuDevicePrimaryCtxRetain", static_cast<unsigned>(device));
}

int cuDevicePrimaryCtxRelease_v2(int device) {
    return stub::call("cuDevicePrimaryCtxRelease", static_cast<unsigned>(device));
}

int cuCtxSetCurrent(void*) { return stub::call("cuCtxSetCurrent"); }

int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    const int code = allocate("cuMemHostAlloc", memory, bytes);
    if (code == 0) touch(*memory, bytes);
    return code;
}

int cuMemAllocManaged(void** memory, size_t bytes, unsigned) { return allocate("cuMemAllocManaged", memory, bytes); }

int cuMemHostRegister_v2(void* memory, size_t bytes, unsigned) {
    if (const int code = stub::call("cuMemHostRegister", bytes)) return code;
    const std::lock_guard<std::mutex> guard(mutex);
    if (!pinned.emplace(memory, bytes).second) return registered;
    touch(memory, bytes);
    return 0;
}

int cuMemHostRegister(void* memory, size_t bytes, unsigned flags) { return cuMemHostRegister_v2(memory, bytes, flags); }

int cuMemHostUnregister(void* memory) {
    const std::lock_guard<std::mutex> guard(mutex);
    const auto found = pinned.find(memory);
    if (found == pinned.end()) return not_registered;
    const int code = stub::call("cuMemHostUnregister", found->second);
    pinned.erase(found);
    return code;
}

int cuGetErrorName(int, const char** name) {
    *name = "CUDA_ERROR_OF_THE_STUB";
    return 0;
}

}  // extern "C"
