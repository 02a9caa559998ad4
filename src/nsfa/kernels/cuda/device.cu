// What the other sources need of the device: kernels by their names, shared memory, waiting for all blocks.

#define KERNEL extern "C" __global__ void
#define SHARED(type, name) extern __shared__ type name[]
#define NULL 0
#ifndef INFINITY  // compiled at run time there is no math.h
#define INFINITY __longlong_as_double(0x7ff0000000000000LL)
#define NAN __longlong_as_double(0x7ff8000000000000LL)
#endif

// Kernels whose blocks wait for each other: all must be on the device at once, by a cooperative launch.
#define COOPERATIVE KERNEL __launch_bounds__(640)

__device__ void grid_barrier(unsigned int* counter, unsigned int& generation) {
    __syncthreads();
    generation += gridDim.x;
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(counter, 1u);
        while (*(volatile unsigned int*)counter < generation) {
        }
        __threadfence();
    }
    __syncthreads();
}

// What another block may have written: not from this multiprocessor's cache.
__device__ inline double read_through(const double* at) { return *(const volatile double*)at; }
