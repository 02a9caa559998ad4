// Loadings given the scores, a warp a feature. Loadings (D, K) lie in rows of `width`; a loading in use is not zero.

__device__ inline double slab_of(const double* slab, int relative, index_t k, double tau) {
    return relative ? slab[k] * tau : slab[k];
}

// One Gibbs pass over (z, g) of every feature, given prior logits (K,) and what is known (D, n_known); feature anchor[k]
// keeps factor k. Within a feature the loadings come one after another, but those that are and stay zero change nothing
// for the others: of 32 factors at a time the first that changes is found by a vote, the others wait for it.
// Shared memory: the products S if they fit (shared_gram), then five numbers a factor for each warp, then counts and sums.
// usage (2, K) counts the features that use each factor and adds up their numbers: that of the only one, if there is one.
KERNEL sweep_rows(index_t n_features, int k, int width, double* loadings, const double* cross, const double* gram,
                  const double* power, const double* noise, const double* slab, int relative, const double* logit,
                  const double* known, int n_known, const index_t* anchor, word_t key, int shared_gram,
                  word_t* usage, double* residual) {
    SHARED(double, room);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    double* gram_room = room;
    double* mine = room + (shared_gram ? k * k : 0) + warp * 5 * k;
    word_t* count = (word_t*)(room + (shared_gram ? k * k : 0) + warps * 5 * k);
    for (int i = threadIdx.x; i < 2 * k; i += blockDim.x) count[i] = 0;
    if (shared_gram)
        for (int i = threadIdx.x; i < k * k; i += blockDim.x) gram_room[i] = gram[i];
    __syncthreads();
    const double* S = shared_gram ? gram_room : gram;
    double *c = mine, *g = mine + k, *variance = mine + 2 * k, *error = mine + 3 * k, *bar = mine + 4 * k;
    for (index_t d = (index_t)blockIdx.x * warps + warp; d < n_features; d += (index_t)gridDim.x * warps) {
        double tau = noise[d], total = 0.0;
        for (int j = lane; j < k; j += 32) {
            double slab_j = slab_of(slab, relative, j, tau), precision = tau * S[j * k + j] + slab_j;
            Words pair = word_pair(key, d, j, 0, 0);
            double u = to_unit(pair.first);
            c[j] = cross[d * k + j];
            g[j] = loadings[d * width + j];
            variance[j] = 1.0 / precision;
            error[j] = sqrt(1.0 / precision) * normal_from(pair.second, key, d, j, 1);
            bar[j] = log(u / (1.0 - u)) + 0.5 * log(precision / slab_j) - logit[j]
                     - (j < n_known ? known[d * n_known + j] : 0.0);
            if (anchor[j] == d) bar[j] = -INFINITY;
        }
        __syncwarp();
        for (int base = 0; base < k; base += 32) {
            unsigned int used = __ballot_sync(0xffffffffu, base + lane < k && g[min(base + lane, k - 1)] != 0.0);
            for (; used; used &= used - 1) {
                int j = base + __ffs(used) - 1;
                double value = g[j];
                for (int t = lane; t < k; t += 32) c[t] -= value * S[j * k + t];
            }
        }
        __syncwarp();
        for (int j = lane; j < k; j += 32) total -= g[j] * (cross[d * k + j] + c[j]);
        total = power[d] + warp_sum(total);
        for (int base = 0; base < k; base += 32) {
            int j = base + lane, from = 0;
            while (true) {
                double now = 0.0, next = 0.0;
                bool moves = false;
                if (j < k && lane >= from) {
                    now = g[j];
                    double shift = tau * (c[j] + now * S[j * k + j]), mean = shift * variance[j];
                    next = 0.5 * shift * mean > bar[j] ? mean + error[j] : 0.0;
                    moves = next != now;
                }
                unsigned int vote = __ballot_sync(0xffffffffu, moves);
                if (!vote) break;
                int first = __ffs(vote) - 1, at = base + first;
                double change = __shfl_sync(0xffffffffu, next - now, first);
                double excess = c[at];
                __syncwarp();
                total += change * (change * S[at * k + at] - 2.0 * excess);
                for (int t = base + lane; t < k; t += 32) c[t] -= change * S[at * k + t];
                if (lane == first) g[at] = next;
                __syncwarp();
                from = first + 1;
            }
        }
        for (int j = lane; j < k; j += 32) {
            loadings[d * width + j] = g[j];
            if (g[j] != 0.0) {
                atomicAdd(count + j, (word_t)1);
                atomicAdd(count + k + j, (word_t)d);
            }
        }
        if (lane == 0) residual[d] = fmax(total, 0.0);
        __syncwarp();
    }
    __syncthreads();
    for (int i = threadIdx.x; i < 2 * k; i += blockDim.x)
        if (count[i]) atomicAdd(usage + i, count[i]);
}

// A feature's loadings in use, and their Σ λ g², by a warp; none where slab is NULL.
struct Weight { double number, square; };
__device__ inline Weight weight_of(const double* row, const double* slab, int k) {
    Weight out = {0.0, 0.0};
    for (int j = threadIdx.x % 32; slab && j < k; j += 32) {
        double g = row[j];
        out.number += g != 0.0 ? 1.0 : 0.0;
        out.square += slab[j] * g * g;
    }
    out.number = warp_sum(out.number);
    out.square = warp_sum(out.square);
    return out;
}

// The same for every feature (2, D), a warp each.
KERNEL slab_weight(index_t n_features, int k, int width, const double* loadings, const double* slab, double* out) {
    index_t d = thread_number() / 32;
    if (d >= n_features) return;
    Weight weight = weight_of(loadings + d * width, slab, k);
    if (threadIdx.x % 32 == 0) {
        out[d] = weight.number;
        out[n_features + d] = weight.square;
    }
}

// Noise precisions, Gamma(shape + half the number, rate + half the squares) and no larger than most, a warp each: of n
// residuals with sum of squares r, and of loadings with slabs in units of the noise (NULL for none).
KERNEL fill_noise(index_t n, int k, int width, const double* loadings, const double* slab, const double* count,
                  const double* residual, double shape, double rate, double most, word_t key, double* out) {
    index_t d = thread_number() / 32;
    if (d >= n) return;
    Weight weight = weight_of(loadings + d * width, slab, k);
    if (threadIdx.x % 32) return;
    double number = count[d] + weight.number, square = residual[d] + weight.square;
    out[d] = fmin(gamma_draw(shape + 0.5 * number, key, d, 0) / (rate + 0.5 * square), most);
}

// Σ_d g² w_d of every factor, of the features of one block; w is NULL for ones. A block's sums go to out (blocks, K).
KERNEL column_squares(index_t n_features, int k, int width, const double* loadings, const double* weight, double* out) {
    index_t each = (n_features + gridDim.x - 1) / gridDim.x, start = blockIdx.x * each;
    index_t stop = start + each < n_features ? start + each : n_features;
    for (int j = threadIdx.x; j < k; j += blockDim.x) {
        double total = 0.0;
        for (index_t d = start; d < stop; ++d) {
            double g = loadings[d * width + j];
            total += g * g * (weight ? weight[d] : 1.0);
        }
        out[blockIdx.x * k + j] = total;
    }
}

// Numbers (n, k) in rows of `width` to the table's precision in rows of `to`.
template <typename T>
__device__ void convert(index_t n, int k, int width, int to, const double* from, T* out) {
    index_t i = thread_number();
    if (i < n * k) out[i / k * to + i % k] = (T)from[i / k * width + i % k];
}
KERNEL convert_float(index_t n, int k, int width, int to, const double* from, float* out) {
    convert<float>(n, k, width, to, from, out);
}
KERNEL convert_double(index_t n, int k, int width, int to, const double* from, double* out) {
    convert<double>(n, k, width, to, from, out);
}

// Numbers (n, k) of the table's precision in rows of `width`, less a number for each column, as doubles.
template <typename T>
__device__ void centre(index_t n, int k, int width, const T* from, const double* less, double* out) {
    index_t i = thread_number();
    if (i < n * k) out[i] = (double)from[i / k * width + i % k] - less[i % k];
}
KERNEL centre_float(index_t n, int k, int width, const float* from, const double* less, double* out) {
    centre<float>(n, k, width, from, less, out);
}
KERNEL centre_double(index_t n, int k, int width, const double* from, const double* less, double* out) {
    centre<double>(n, k, width, from, less, out);
}

// out (n, k) += numbers of the table's precision in rows of `width`; or = where there is nothing yet.
template <typename T>
__device__ void accumulate(index_t n, int k, int width, const T* from, int first, double* out) {
    index_t i = thread_number();
    if (i < n * k) out[i] = (double)from[i / k * width + i % k] + (first ? 0.0 : out[i]);
}
KERNEL accumulate_float(index_t n, int k, int width, const float* from, int first, double* out) {
    accumulate<float>(n, k, width, from, first, out);
}
KERNEL accumulate_double(index_t n, int k, int width, const double* from, int first, double* out) {
    accumulate<double>(n, k, width, from, first, out);
}

// Loadings in rows of `width` times the features' weights as a dense (D, K), and 1 where they are in use.
KERNEL spread_loadings(index_t n, int k, int width, const double* loadings, const double* weight, double* weighted,
                       double* pattern) {
    index_t i = thread_number();
    if (i >= n * k) return;
    double g = loadings[i / k * width + i % k];
    weighted[i] = weight ? g * weight[i / k] : g;
    pattern[i] = g != 0.0 ? 1.0 : 0.0;
}

// For the scores: loadings times noise precisions (D, K), as doubles and in the table's precision in rows of `to`; and
// loadings beside their features' centres (D, K + 1).
template <typename T>
__device__ void spread_weighted(index_t n, int k, int width, int to, const double* loadings, const double* noise,
                                const double* first, const double* second, double* beside, double* weighted, T* out) {
    index_t i = thread_number();
    if (i >= n * k) return;
    index_t d = i / k;
    int j = (int)(i % k);
    double g = loadings[d * width + j], w = g * noise[d];
    beside[d * (k + 1) + j] = g;
    if (j == 0) beside[d * (k + 1) + k] = (first ? first[d] : 0.0) + (second ? second[d] : 0.0);
    weighted[i] = w;
    out[d * to + j] = (T)w;
}
KERNEL spread_weighted_float(index_t n, int k, int width, int to, const double* loadings, const double* noise,
                             const double* first, const double* second, double* beside, double* weighted, float* out) {
    spread_weighted<float>(n, k, width, to, loadings, noise, first, second, beside, weighted, out);
}
KERNEL spread_weighted_double(index_t n, int k, int width, int to, const double* loadings, const double* noise,
                              const double* first, const double* second, double* beside, double* weighted, double* out) {
    spread_weighted<double>(n, k, width, to, loadings, noise, first, second, beside, weighted, out);
}

// T (D, K) of scores that were shifted and of values reduced by intercepts: it is reduced by `old` (NULL for none) and is
// to be by `now`, which shifted scores have the sums for. And Σ (y − now)² of every feature.
KERNEL centre_cross(index_t n, int k, const double* total, const double* count, const double* square,
                    const double* shift, const double* sums, const double* old, const double* now, double* cross,
                    double* power) {
    index_t i = thread_number();
    if (i >= n * k) return;
    index_t d = i / k;
    int j = (int)(i % k);
    double before = old ? old[d] : 0.0, mu = now[d];
    cross[i] += (total[d] - count[d] * before) * shift[j] - (mu - before) * sums[j];
    if (j == 0) power[d] = fmax(square[d] - mu * (2.0 * total[d] - mu * count[d]), 0.0);
}

// Features' means given all else, a warp each; T and Σ (y − now)² follow as by `centre_cross`.
KERNEL draw_means(index_t n, int k, int width, const double* loadings, const double* total, const double* count,
                  const double* square, const double* noise, const double* shift, const double* sums,
                  const double* old, word_t key, double* cross, double* power, double* out) {
    index_t d = thread_number() / 32;
    int lane = threadIdx.x % 32;
    if (d >= n) return;
    double fit = 0.0, before = old ? old[d] : 0.0;
    for (int j = lane; j < k; j += 32) fit += loadings[d * width + j] * sums[j];
    double mu = (total[d] - warp_sum(fit)) / count[d] + normal_at(key, d, 0) / sqrt(noise[d] * count[d]);
    for (int j = lane; j < k; j += 32)
        cross[d * k + j] += (total[d] - count[d] * before) * shift[j] - (mu - before) * sums[j];
    if (lane == 0) {
        power[d] = fmax(square[d] - mu * (2.0 * total[d] - mu * count[d]), 0.0);
        out[d] = mu;
    }
}

// The fit of scores that are `by` lowers the features' means, a warp each.
KERNEL lower_means(index_t n, int k, int width, const double* loadings, const double* by, double* mean) {
    index_t d = thread_number() / 32;
    int lane = threadIdx.x % 32;
    if (d >= n) return;
    double fit = 0.0;
    for (int j = lane; j < k; j += 32) fit += loadings[d * width + j] * by[j];
    fit = warp_sum(fit);
    if (lane == 0) mean[d] -= fit;
}

// Loadings in rows of `width` from a dense (D, K).
KERNEL put_loadings(index_t n, int k, int width, const double* from, double* loadings) {
    index_t i = thread_number();
    if (i < n * k) loadings[i / k * width + i % k] = from[i];
}

// Loadings times a number for each factor.
KERNEL scale_columns(index_t n, int k, int width, const double* by, double* loadings) {
    index_t i = thread_number();
    if (i < n * k) loadings[i / k * width + i % k] *= by[i % k];
}

// Column target[i] becomes column source[i], or zero where that is negative.
KERNEL move_columns(index_t n, int number, int width, const index_t* target, const index_t* source, double* loadings) {
    index_t d = thread_number();
    if (d >= n) return;
    double* row = loadings + d * width;
    for (int i = 0; i < number; ++i) row[target[i]] = source[i] < 0 ? 0.0 : row[source[i]];
}

// Set single loadings; of several values for one the last counts.
KERNEL set_entries(int number, int width, const index_t* row, const index_t* column, const double* value,
                   double* loadings) {
    index_t i = thread_number();
    if (i >= number) return;
    for (int later = i + 1; later < number; ++later)
        if (row[later] == row[i] && column[later] == column[i]) return;
    loadings[row[i] * width + column[i]] = value[i];
}

// The feature that is number rank[i] (from 0) of those that use factor[i]; a block each, of at most 32 warps.
KERNEL nth_users(index_t n_features, int width, const index_t* factor, const index_t* rank, const double* loadings,
                 index_t* out) {
    SHARED(int, count);
    index_t left = rank[blockIdx.x], k = factor[blockIdx.x];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (index_t base = 0; base < n_features; base += blockDim.x) {
        index_t d = base + threadIdx.x;
        unsigned int used = __ballot_sync(0xffffffffu, d < n_features && loadings[min(d, n_features - 1) * width + k] != 0.0);
        if (lane == 0) count[warp] = __popc(used);
        __syncthreads();
        int before = 0, here = 0;
        for (int w = 0; w < warps; ++w) {
            before += w < warp ? count[w] : 0;
            here += count[w];
        }
        __syncthreads();
        if (left < here) {
            int rest = (int)left - before;
            if (lane == 0 && rest >= 0 && rest < __popc(used)) {
                for (; rest; --rest) used &= used - 1;
                out[blockIdx.x] = d + __ffs(used) - 1;
            }
            return;
        }
        left -= here;
    }
}
