// Registry of the latency logs of a process.
#include "io/latency.hpp"

#include <algorithm>
#include <mutex>

namespace outcore {
namespace {

struct Registry {
    std::mutex mutex;
    std::vector<const LatencyLog*> logs;
    std::vector<u32> ended = std::vector<u32>(LatencyLog::cells);  // counts of logs that are gone
};

// Never destroyed: a backend may end after static objects.
Registry& registry() {
    static auto* one = new Registry;
    return *one;
}

}  // namespace

LatencyLog::LatencyLog()
    : memory_(cells * sizeof(std::atomic<u32>)), counts_(reinterpret_cast<std::atomic<u32>*>(memory_.data())) {
    const std::lock_guard lock(registry().mutex);
    registry().logs.push_back(this);
}

LatencyLog::~LatencyLog() {
    const std::lock_guard lock(registry().mutex);
    add_to(registry().ended);
    std::erase(registry().logs, this);
}

void LatencyLog::add_to(std::vector<u32>& sum) const {
    for (size_t i = 0; i < cells; ++i) sum[i] += counts_[i].load(std::memory_order_relaxed);
}

std::vector<u32> LatencyLog::summed() {
    const std::lock_guard lock(registry().mutex);
    std::vector<u32> sum = registry().ended;
    for (const LatencyLog* log : registry().logs) log->add_to(sum);
    return sum;
}

}  // namespace outcore
