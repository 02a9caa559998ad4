// CUDA on the host, in place of kernels/cuda/device.cu: every thread is a fiber that runs until it waits for others.
//
// A warp runs on as far as it can before the next one does, and so does a block, both in an order shuffled by a seed (0:
// as numbered): where a barrier is missing, some order shows it. Threads that have returned are waited for by no one, and
// what a lane would read from them is garbage. Threads that wait for each other forever are an error.

#include <math.h>
#include <setjmp.h>
#include <stddef.h>
#include <string.h>
#include <ucontext.h>

#include <functional>
#include <map>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#define KERNEL static void
#define COOPERATIVE KERNEL
#define SHARED(type, name) type* name = (type*)cuda_host::shared_memory()
#define __device__
#define __global__

namespace cuda_host {

enum Wait { READY, FOR_WARP, FOR_BLOCK, FOR_GRID, DONE };
struct Index { unsigned int x, y, z; };
// What the lanes of a warp show each other, in turns: one that is a collective ahead must not disturb the others.
struct Warp {
    char shown[2][32][8];
    unsigned int arrived[2];
};
struct Fiber {
    ucontext_t start;
    jmp_buf state;
    bool started = false;
    std::vector<char> stack;
    Index thread, block;
    Warp* warp;
    char* shared;
    Wait wait;
    const char* at;
    int line;
    unsigned int turn;
};

const size_t STACK = 1 << 16, GUARD = 256;
static Fiber* volatile current;
static jmp_buf home;
static ucontext_t origin;
static std::vector<Fiber*> pool;
static std::function<void()> body;
static std::string failure;
static Index block_size, grid_size;
static unsigned long long order_state;

__attribute__((noinline)) static void pause_fiber() {
    if (!_setjmp(current->state)) _longjmp(home, 1);
}

static void life_of_fiber() {
    while (true) {
        body();
        current->wait = DONE;
        pause_fiber();
    }
}

__attribute__((noinline)) static void resume(Fiber* fiber) {
    current = fiber;
    if (_setjmp(home)) return;
    if (fiber->started) _longjmp(fiber->state, 1);
    fiber->started = true;
    fiber->stack.resize(STACK);
    getcontext(&fiber->start);
    fiber->start.uc_stack.ss_sp = fiber->stack.data();
    fiber->start.uc_stack.ss_size = STACK;
    fiber->start.uc_link = &origin;
    makecontext(&fiber->start, life_of_fiber, 0);
    setcontext(&fiber->start);
}

static void wait_for(Wait whom, const char* at, int line) {
    current->wait = whom;
    current->at = at;
    current->line = line;
    pause_fiber();
}

static char* shared_memory() { return current->shared; }

// Show the other lanes a value and wait for theirs; returns where they are.
template <typename T>
static unsigned int exchange(unsigned int mask, const T& value, const char* at, int line) {
    unsigned int turn = current->turn++ % 2, lane = current->thread.x % 32;
    if (mask != 0xffffffffu && failure.empty()) failure = std::string(at) + " of a part of a warp in line " + std::to_string(line);
    Warp* warp = current->warp;
    memcpy(warp->shown[turn][lane], &value, sizeof(T));
    warp->arrived[turn] |= 1u << lane;
    wait_for(FOR_WARP, at, line);
    return turn;
}

template <typename T>
static T shown_by(unsigned int lane, unsigned int turn) {
    T out;
    memset(&out, 0xff, sizeof(T));
    if (current->warp->arrived[turn] >> lane & 1) memcpy(&out, current->warp->shown[turn][lane], sizeof(T));
    return out;
}

template <typename T>
static void shuffle(std::vector<T>& items) {
    if (!order_state) return;
    for (size_t i = items.size(); i > 1; --i) {
        order_state ^= order_state << 13;
        order_state ^= order_state >> 7;
        order_state ^= order_state << 17;
        std::swap(items[i - 1], items[(order_state >> 11) % i]);
    }
}

typedef std::vector<Fiber*> Fibers;

static std::string where(const Fibers& fibers) {
    std::map<std::string, int> number;
    for (Fiber* f : fibers)
        ++number[f->wait == DONE ? "returned" : "wait at " + std::string(f->at) + " in line " + std::to_string(f->line)];
    std::string out;
    for (auto& item : number) out += (out.empty() ? "" : ", ") + std::to_string(item.second) + " " + item.first;
    return out;
}

// Let fibers go on if all that have not returned wait for the same; whether they do.
static bool release(const Fibers& fibers, Wait whom) {
    Fiber* first = NULL;
    bool together = true;
    for (Fiber* f : fibers) {
        if (f->wait == DONE) continue;
        if (f->wait != whom) return false;
        if (!first) first = f;
        together = together && f->line == first->line && f->at == first->at;
    }
    if (!first) return false;
    if (!together) {
        failure = "threads wait in different places: " + where(fibers);
        return false;
    }
    for (Fiber* f : fibers)
        if (f->wait == whom) f->wait = READY;
    return true;
}

static void run_warp(Fibers lanes) {
    Warp* warp = lanes[0]->warp;
    while (failure.empty()) {
        shuffle(lanes);
        for (Fiber* f : lanes)
            if (f->wait == READY) resume(f);
        if (!release(lanes, FOR_WARP)) return;
        // at their next collective nobody has arrived
        for (Fiber* f : lanes)
            if (f->wait == READY) warp->arrived[f->turn % 2] = 0;
    }
}

static void run_block(std::vector<Fibers>& warps, const Fibers& all) {
    while (failure.empty()) {
        shuffle(warps);
        for (Fibers& warp : warps) run_warp(warp);
        if (!release(all, FOR_BLOCK)) return;
    }
}

struct Block {
    std::vector<Warp> warp_room;
    std::vector<double> room;
    std::vector<Fibers> warps;
    Fibers all;
    size_t shared;

    Block(unsigned int number, int threads, size_t shared_bytes, size_t first_fiber)
        : warp_room((threads + 31) / 32), room((shared_bytes + 2 * GUARD + 7) / 8), warps((threads + 31) / 32), shared(shared_bytes) {
        memset(room.data(), 0xff, room.size() * 8);
        memset(warp_room.data(), 0, warp_room.size() * sizeof(Warp));
        while (pool.size() < first_fiber + threads) pool.push_back(new Fiber);
        for (int t = 0; t < threads; ++t) {
            Fiber* f = pool[first_fiber + t];
            f->thread = {(unsigned int)t, 0, 0};
            f->block = {number, 0, 0};
            f->warp = &warp_room[t / 32];
            f->shared = (char*)room.data() + GUARD;
            f->wait = READY;
            f->turn = 0;
            warps[t / 32].push_back(f);
            all.push_back(f);
        }
    }
    void check() const {
        const unsigned char* bytes = (const unsigned char*)room.data();
        for (size_t i = 0; i < room.size() * 8; ++i)
            if ((i < GUARD || i >= GUARD + shared) && bytes[i] != 0xff) failure = "a write outside the shared memory";
    }
    bool done() const {
        for (Fiber* f : all)
            if (f->wait != DONE) return false;
        return true;
    }
};

// Blocks that are there at once: as far as each comes alone, then past the barrier of all.
static void run_blocks(std::vector<Block*> blocks) {
    Fibers all;
    for (Block* block : blocks) all.insert(all.end(), block->all.begin(), block->all.end());
    while (failure.empty()) {
        shuffle(blocks);
        bool done = true, any_returned = false;
        for (Block* block : blocks) {
            run_block(block->warps, block->all);
            done = done && block->done();
        }
        for (Fiber* f : all) any_returned = any_returned || f->wait == DONE;
        if (done || !failure.empty()) break;
        // a block that has returned would be waited for
        if (any_returned || !release(all, FOR_GRID)) {
            if (failure.empty()) failure = "threads wait for each other forever: " + where(all);
        }
    }
    for (Block* block : blocks) block->check();
}

static const char* launch(int blocks, int threads, long long shared, int together, unsigned long long seed) {
    block_size = {(unsigned int)threads, 1, 1};
    grid_size = {(unsigned int)blocks, 1, 1};
    order_state = seed * 0x9E3779B97F4A7C15ull;
    failure.clear();
    std::vector<unsigned int> numbers;
    for (int b = 0; b < blocks; ++b) numbers.push_back(b);
    shuffle(numbers);
    std::vector<Block*> group;
    for (unsigned int number : numbers) {
        group.push_back(new Block(number, threads, shared, group.size() * threads));
        if (together && (int)group.size() < blocks) continue;
        run_blocks(group);
        for (Block* block : group) delete block;
        group.clear();
        if (!failure.empty()) {
            // fibers stopped in the middle do not begin anew
            for (Fiber* f : pool) delete f;
            pool.clear();
            return failure.c_str();
        }
    }
    return NULL;
}

template <typename... T, size_t... I>
static const char* run(void (*kernel)(T...), std::index_sequence<I...>, void** arguments, int blocks, int threads,
                       long long shared, int together, unsigned long long seed) {
    body = [=] { kernel(*(T*)arguments[I]...); };
    return launch(blocks, threads, shared, together, seed);
}

}  // namespace cuda_host

// One for each kernel: arguments by their addresses; returns what went wrong, or NULL.
#define TRAMPOLINE(kernel, n)                                                                                       \
    extern "C" const char* run_##kernel(void** arguments, int blocks, int threads, long long shared, int together, \
                                        unsigned long long seed) {                                                  \
        return cuda_host::run(kernel, std::make_index_sequence<n>(), arguments, blocks, threads, shared, together, seed); \
    }

#define threadIdx (cuda_host::current->thread)
#define blockIdx (cuda_host::current->block)
#define blockDim (cuda_host::block_size)
#define gridDim (cuda_host::grid_size)

static inline void __syncthreads(int line = __builtin_LINE()) { cuda_host::wait_for(cuda_host::FOR_BLOCK, "__syncthreads", line); }
static inline void __syncwarp(unsigned int mask = 0xffffffffu, int line = __builtin_LINE()) {
    cuda_host::exchange(mask, 0, "__syncwarp", line);
}
static inline unsigned int __ballot_sync(unsigned int mask, int vote, int line = __builtin_LINE()) {
    unsigned int turn = cuda_host::exchange(mask, vote, "__ballot_sync", line), out = 0;
    for (unsigned int lane = 0; lane < 32; ++lane)
        if (cuda_host::current->warp->arrived[turn] >> lane & 1) out |= (cuda_host::shown_by<int>(lane, turn) != 0 ? 1u : 0u) << lane;
    return out;
}
template <typename T>
static inline T __shfl_sync(unsigned int mask, T value, int from, int line = __builtin_LINE()) {
    return cuda_host::shown_by<T>(from % 32, cuda_host::exchange(mask, value, "__shfl_sync", line));
}
template <typename T>
static inline T __shfl_xor_sync(unsigned int mask, T value, int with, int line = __builtin_LINE()) {
    unsigned int turn = cuda_host::exchange(mask, value, "__shfl_xor_sync", line);
    return cuda_host::shown_by<T>((threadIdx.x % 32) ^ with, turn);
}
static inline void __threadfence() {}
static inline int __ffs(int word) { return __builtin_ffs(word); }
static inline int __popc(unsigned int word) { return __builtin_popcount(word); }
template <typename T, typename V>
static inline T atomicAdd(T* at, V more) {
    T before = *at;
    *at += (T)more;
    return before;
}
template <typename A, typename B>
static inline typename std::common_type<A, B>::type min(A a, B b) { return b < a ? b : a; }
template <typename A, typename B>
static inline typename std::common_type<A, B>::type max(A a, B b) { return a < b ? b : a; }

static inline void grid_barrier(unsigned int* counter, unsigned int& generation, int line = __builtin_LINE()) {
    generation += gridDim.x;
    if (threadIdx.x == 0) *counter += 1;
    cuda_host::wait_for(cuda_host::FOR_GRID, "grid_barrier", line);
}
static inline double read_through(const double* at) { return *at; }
