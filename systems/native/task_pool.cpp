// The shared task pool.
#include "task_pool.hpp"

#include <algorithm>

namespace outcore {

TaskPool& TaskPool::shared() {
    // Never destroyed: a helper may be in a page fault when the process ends.
    static TaskPool* pool = new TaskPool;
    return *pool;
}

TaskPool::~TaskPool() {
    {
        const std::lock_guard lock(mutex_);
        closing_ = true;
    }
    job_there_.notify_all();
    for (auto& thread : threads_) thread.join();
}

void TaskPool::run(std::size_t count, std::size_t chunk, unsigned threads,
                   const std::function<void(std::size_t, std::size_t)>& body) {
    chunk = std::max<std::size_t>(chunk, 1);
    Job job{&body, count, chunk, count / chunk + (count % chunk != 0)};
    const auto helpers = static_cast<unsigned>(std::min<std::size_t>(threads, job.chunks));
    const unsigned extra = helpers > 0 ? helpers - 1 : 0;
    unsigned asked = 0;  // helpers queued
    if (extra > 0) {
        const std::lock_guard lock(mutex_);
        wanted_ += extra;
        if (threads_.size() < wanted_) start_threads(threads_, wanted_ - threads_.size(), [this](std::size_t) { help(); });
        // Without memory to queue a helper, the loop runs with fewer.
        FirstError no_memory;
        no_memory.attempt([&] {
            for (; asked < extra; ++asked) places_.push_back(&job);
        });
    }
    for (unsigned i = 0; i < asked; ++i) job_there_.notify_one();
    job.work();
    if (extra > 0) {
        std::unique_lock lock(mutex_);
        std::erase(places_, &job);  // helpers that have not begun are not needed any more
        helper_left_.wait(lock, [&] { return job.active == 0; });
        wanted_ -= extra;
    }
    job.error.rethrow();
}

void TaskPool::help() {
    std::unique_lock lock(mutex_);
    for (;;) {
        job_there_.wait(lock, [&] { return closing_ || !places_.empty(); });
        if (closing_) return;
        Job* job = places_.front();
        places_.pop_front();
        ++job->active;
        lock.unlock();
        job->work();
        lock.lock();
        if (--job->active == 0) helper_left_.notify_all();
    }
}

}  // namespace outcore
