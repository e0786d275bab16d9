// Exceptions of threads carried to the caller that waits for them: an exception that leaves a thread ends the process.
#pragma once

#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace outcore {

// The first exception of several threads.
class FirstError {
public:
    // Runs the body; returns true if it threw nothing.
    template <class Body>
    bool attempt(Body&& body) noexcept {
        try {
            body();
            return true;
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!error_) error_ = std::current_exception();
            return false;
        }
    }

    // Throws and forgets the first exception, if any; to be called once all threads are done.
    void rethrow() {
        if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    }

private:
    std::mutex mutex_;
    std::exception_ptr error_;
};

// Starts up to `count` threads, fewer where the host gives no more; returns how many.
template <class Body>  // body(number), which throws nothing
std::size_t start_threads(std::vector<std::thread>& threads, std::size_t count, const Body& body) {
    std::size_t started = 0;
    try {
        threads.reserve(threads.size() + count);
        for (; started < count; ++started) threads.emplace_back(body, started);
    } catch (...) {  // the started threads do the work
    }
    return started;
}

}  // namespace outcore
