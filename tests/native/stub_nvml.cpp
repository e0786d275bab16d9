// Stub of NVML. Device d has (d + 1) GiB of memory in use, is busy for 10 (d + 1) % of the time, has used
// 1000 (d + 1) J more energy at each reading, and moves 1000 (d + 1) KiB/s over its bus. A device in slices (STUB_MIG)
// hides its utilisation, as NVML does; its slices s have (s + 1) * 100 MiB in use. Processes: STUB_PROCESSES, which the
// calling process may change, as `0:4711:300,1:4711:20` (device, pid, MiB in use; `?` for a hidden number).
#include <algorithm>

#include "stub_driver.hpp"

namespace {

constexpr int invalid_argument = 2, not_supported = 3, not_found = 6, insufficient_size = 7;
constexpr unsigned long long gib = 1ull << 30, mib = 1ull << 20;

// A handle is one plus the device's number; that of a slice has its own number times 256 above.
int device_of(const void* handle) { return (static_cast<int>(reinterpret_cast<size_t>(handle)) & 0xff) - 1; }
int slice_of(const void* handle) { return (static_cast<int>(reinterpret_cast<size_t>(handle)) >> 8) - 1; }
void* handle_of(int device, int slice = -1) {
    return reinterpret_cast<void*>(static_cast<size_t>((slice + 1) * 256 + device + 1));
}
int answer(const char* name, const void* handle) {
    return stub::call(name, static_cast<unsigned long long>(device_of(handle)));
}
int text(const std::string& value, char* out, unsigned length) {
    if (value.size() >= length) return insufficient_size;
    std::memcpy(out, value.c_str(), value.size() + 1);
    return 0;
}

}  // namespace

extern "C" {

struct Memory {
    unsigned long long total, free, used;
};
struct Memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct Utilization {
    unsigned gpu, memory;
};
struct Process {
    unsigned pid;
    unsigned long long used;
    unsigned instance, compute_instance;
};
struct Support {
    unsigned version, supported;
};
struct Metric {
    unsigned id, code;
    double value;
    const char *short_name, *long_name, *unit;
};
struct Metrics {
    unsigned version, count;
    void *first, *second;
    Metric metrics[1];
};

const char* nvmlErrorString(int code) { return code == 0 ? "Success" : "Error of the stub"; }
int nvmlInitWithFlags(unsigned) { return stub::call("nvmlInit"); }
int nvmlInit_v2() { return stub::call("nvmlInit"); }
int nvmlShutdown() { return stub::call("nvmlShutdown"); }
int nvmlSystemGetDriverVersion(char* version, unsigned length) { return text("580.00.stub", version, length); }

int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = static_cast<unsigned>(stub::devices());
    return stub::call("nvmlDeviceGetCount");
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
    if (const int code = stub::call("nvmlDeviceGetHandleByIndex", index)) return code;
    *handle = handle_of(static_cast<int>(index));
    return static_cast<int>(index) < stub::devices() ? 0 : invalid_argument;
}

int nvmlDeviceGetHandleByUUID(const char* uuid, void** handle) {
    if (const int code = stub::call("nvmlDeviceGetHandleByUUID")) return code;
    for (int device = 0; device < stub::devices(); ++device) {
        for (int slice = -1; slice < (device == stub::cut_device() ? stub::slices : 0); ++slice) {
            if (stub::uuid_text({device, slice}) != uuid) continue;
            *handle = handle_of(device, slice);
            return 0;
        }
    }
    return not_found;
}

int nvmlDeviceGetUUID(void* handle, char* uuid, unsigned length) {
    if (const int code = answer("nvmlDeviceGetUUID", handle)) return code;
    return text(stub::uuid_text({device_of(handle), slice_of(handle)}), uuid, length);
}

int nvmlDeviceGetName(void* handle, char* name, unsigned length) {
    if (const int code = answer("nvmlDeviceGetName", handle)) return code;
    return text("Stub GPU " + std::to_string(device_of(handle)), name, length);
}

int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
    if (const int code = answer("nvmlDeviceGetMemoryInfo", handle)) return code;
    const auto device = static_cast<unsigned long long>(device_of(handle) + 1);
    const auto slice = static_cast<unsigned long long>(slice_of(handle) + 1);
    memory->total = slice > 0 ? 40 * gib : 80 * gib;
    memory->used = slice > 0 ? slice * 100 * mib : device * gib;
    memory->free = memory->total - memory->used;
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void* handle, Memory_v2* memory) {
    Memory plain;
    const int code = nvmlDeviceGetMemoryInfo(handle, &plain);
    memory->total = plain.total, memory->free = plain.free, memory->used = plain.used, memory->reserved = 0;
    return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, Process* out) {
    if (const int code = answer("nvmlDeviceGetComputeRunningProcesses", handle)) return code;
    std::vector<Process> found;
    const char* listed = std::getenv("STUB_PROCESSES");
    for (const std::string& part : stub::parts(listed != nullptr ? listed : "")) {
        std::istringstream fields(part);
        std::string device, pid, used;
        std::getline(std::getline(std::getline(fields, device, ':'), pid, ':'), used);
        if (std::stoi(device) != device_of(handle)) continue;
        found.push_back({static_cast<unsigned>(std::stoul(pid)), used == "?" ? ~0ull : std::stoull(used) * mib, 0, 0});
    }
    const bool fits = out != nullptr && found.size() <= *count;
    *count = static_cast<unsigned>(found.size());
    if (found.empty()) return 0;
    if (!fits) return insufficient_size;
    std::copy(found.begin(), found.end(), out);
    return 0;
}

int nvmlDeviceGetUtilizationRates(void* handle, Utilization* rates) {
    if (const int code = answer("nvmlDeviceGetUtilizationRates", handle)) return code;
    if (device_of(handle) == stub::cut_device()) return not_supported;
    rates->gpu = 10 * static_cast<unsigned>(device_of(handle) + 1);
    rates->memory = 1;
    return 0;
}

int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* millijoules) {
    if (const int code = answer("nvmlDeviceGetTotalEnergyConsumption", handle)) return code;
    static unsigned long long readings[256];
    const auto device = static_cast<size_t>(device_of(handle));
    *millijoules = ++readings[device] * 1000000ull * (device + 1);
    return 0;
}

int nvmlDeviceGetPcieThroughput(void* handle, unsigned, unsigned* kib_per_s) {
    if (const int code = answer("nvmlDeviceGetPcieThroughput", handle)) return code;
    if (device_of(handle) == stub::cut_device()) return not_supported;
    *kib_per_s = 1000 * static_cast<unsigned>(device_of(handle) + 1);
    return 0;
}

int nvmlDeviceGetMigMode(void* handle, unsigned* current, unsigned* pending) {
    *current = *pending = device_of(handle) == stub::cut_device() ? 1 : 0;
    return answer("nvmlDeviceGetMigMode", handle);
}

int nvmlDeviceGetMaxMigDeviceCount(void* handle, unsigned* count) {
    *count = device_of(handle) == stub::cut_device() ? stub::slices : 0;
    return answer("nvmlDeviceGetMaxMigDeviceCount", handle);
}

int nvmlDeviceGetMigDeviceHandleByIndex(void* handle, unsigned index, void** slice) {
    if (const int code = answer("nvmlDeviceGetMigDeviceHandleByIndex", handle)) return code;
    if (device_of(handle) != stub::cut_device() || index >= stub::slices) return not_found;
    *slice = handle_of(device_of(handle), static_cast<int>(index));
    return 0;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* slice, void** handle) {
    if (slice_of(slice) < 0) return invalid_argument;
    *handle = handle_of(device_of(slice));
    return answer("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", slice);
}

int nvmlDeviceIsMigDeviceHandle(void* handle, unsigned* is_slice) {
    *is_slice = slice_of(handle) >= 0 ? 1 : 0;
    return answer("nvmlDeviceIsMigDeviceHandle", handle);
}

int nvmlGpmQueryDeviceSupport(void* handle, Support* support) {
    support->supported = 1;
    return answer("nvmlGpmQueryDeviceSupport", handle);
}

int nvmlGpmSampleAlloc(void** sample) {
    *sample = std::malloc(sizeof(int));
    return stub::call("nvmlGpmSampleAlloc");
}

int nvmlGpmSampleFree(void* sample) {
    std::free(sample);
    return stub::call("nvmlGpmSampleFree");
}

int nvmlGpmSampleGet(void* handle, void* sample) {
    *static_cast<int*>(sample) = device_of(handle);
    return answer("nvmlGpmSampleGet", handle);
}

// Metric m of device d is m + 100 d.
int nvmlGpmMetricsGet(Metrics* asked) {
    if (const int code = stub::call("nvmlGpmMetricsGet", asked->count)) return code;
    for (unsigned i = 0; i < asked->count; ++i) {
        asked->metrics[i].code = 0;
        asked->metrics[i].value = asked->metrics[i].id + 100.0 * *static_cast<int*>(asked->second);
    }
    return 0;
}

}  // extern "C"
