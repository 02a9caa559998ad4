// Random numbers that depend on a key and a position: the twin of kernels/compiled.py, word for word.
// ZIGGURAT_X, ZIGGURAT_RATIO and every constant in capitals come from kernels/streams.py.

typedef unsigned long long word_t;
typedef long long index_t;

struct Words { word_t first, second; };

__device__ inline Words word_pair(word_t key, word_t row, word_t column, word_t attempt, word_t half) {
    unsigned int c0 = (unsigned int)column, c1 = (unsigned int)row, c2 = (unsigned int)attempt, c3 = (unsigned int)half;
    unsigned int k0 = (unsigned int)key, k1 = (unsigned int)(key >> 32);
    for (int i = 0; i < 10; ++i) {
        word_t p0 = (word_t)0xD2511F53u * c0, p1 = (word_t)0xCD9E8D57u * c2;
        c0 = (unsigned int)(p1 >> 32) ^ c1 ^ k0;
        c1 = (unsigned int)p1;
        c2 = (unsigned int)(p0 >> 32) ^ c3 ^ k1;
        c3 = (unsigned int)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    Words out = {((word_t)c0 << 32) | c1, ((word_t)c2 << 32) | c3};
    return out;
}

__device__ inline double to_unit(word_t word) { return ((double)(word >> 12) + 0.5) * 2.220446049250313e-16; }

__device__ double slow_normal(word_t word, word_t key, word_t row, word_t column, word_t half) {
    word_t attempt = 1;
    while (true) {
        double u = 2.0 * to_unit(word) - 1.0;
        int block = (int)(word & 127);
        double x = u * ZIGGURAT_X[block];
        if (fabs(u) < ZIGGURAT_RATIO[block]) return x;
        Words more = word_pair(key, row, column, attempt++, half);
        if (block == 0) {
            while (true) {
                double past = -log(to_unit(more.first)) / ZIGGURAT_EDGE;
                if (-2.0 * log(to_unit(more.second)) > past * past) return copysign(ZIGGURAT_EDGE + past, u);
                more = word_pair(key, row, column, attempt++, half);
            }
        }
        double top = exp(-0.5 * (ZIGGURAT_X[block] * ZIGGURAT_X[block] - x * x));
        double low = exp(-0.5 * (ZIGGURAT_X[block + 1] * ZIGGURAT_X[block + 1] - x * x));
        if (low + to_unit(more.first) * (top - low) < 1.0) return x;
        word = more.second;
    }
}

__device__ inline double normal_from(word_t word, word_t key, word_t row, word_t column, word_t half) {
    double u = 2.0 * to_unit(word) - 1.0;
    int block = (int)(word & 127);
    return fabs(u) < ZIGGURAT_RATIO[block] ? u * ZIGGURAT_X[block] : slow_normal(word, key, row, column, half);
}

__device__ inline double normal_at(word_t key, word_t row, word_t column) {
    return normal_from(word_pair(key, row, column, 0, 0).second, key, row, column, 1);
}

__device__ double gamma_draw(double shape, word_t key, word_t row, word_t column) {
    double d = shape >= 1.0 ? shape - 1.0 / 3.0 : shape + 2.0 / 3.0, value;
    while (true) {
        Words pair = word_pair(key, row, column, 0, 0);
        double u = to_unit(pair.first), x = normal_from(pair.second, key, row, column, 1);
        double cube = 1.0 + x / sqrt(9.0 * d);
        cube = cube * cube * cube;
        ++column;
        value = d * cube;
        if (cube > 0.0 && (u < 1.0 - 0.0331 * (x * x) * (x * x)
                           || log(u) < 0.5 * x * x + d - d * cube + d * log(cube))) break;
    }
    if (shape < 1.0) value *= pow(to_unit(word_pair(key, row, column, 0, 0).first), 1.0 / shape);
    return fmax(value, 2.2250738585072014e-308);
}

__device__ inline index_t thread_number() { return (index_t)blockIdx.x * blockDim.x + threadIdx.x; }

__device__ inline double warp_sum(double value) {
    for (int step = 16; step > 0; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

// Gamma(shape, rate), one a thread, no larger than most.
KERNEL fill_gammas(index_t n, const double* shape, const double* rate, double most, word_t key, double* out) {
    index_t i = thread_number();
    if (i < n) out[i] = fmin(gamma_draw(shape[i], key, i, 0) / rate[i], most);
}

// Add standard normals to (n, k): row i is the stream of row first + i, two columns a position.
KERNEL add_normals(index_t n, index_t k, word_t key, index_t first, double* out) {
    index_t blocks = (k + 1) / 2, i = thread_number();
    if (i >= n * blocks) return;
    index_t row = i / blocks, block = i % blocks;
    Words pair = word_pair(key, first + row, block, 0, 0);
    double* at = out + row * k + 2 * block;
    at[0] += normal_from(pair.first, key, first + row, block, 0);
    if (2 * block + 1 < k) at[1] += normal_from(pair.second, key, first + row, block, 1);
}

// A standard normal for each position (n, k): the second word's.
KERNEL fill_normals(index_t n, index_t k, word_t key, double* out) {
    index_t i = thread_number();
    if (i < n * k) out[i] = normal_at(key, i / k, i % k);
}
