// Tilts and rotations of pairs of factors, one pair after another in a single launch: the twins of kernels/pair_kernels.py
// and kernels/rotation_kernels.py. Every thread keeps to features of its own, all blocks wait for each other's sums, and
// every thread then decides the same. S and the map of the scores are changed by the first block alone.

// What all pairs share. loadings (D, K) in rows of `width`, changed; excess (D, K) = (Y − G Xᵀ) X; gram, turn (K, K);
// slab (K,), or (D, K) where by_feature; known (D, n_known); work (WORK_ROWS, D).
struct Problem {
    index_t n_features;
    int k, width, by_feature, n_known, n_pairs;
    double *loadings, *excess, *gram, *turn;
    int* usage;
    const double *noise, *slab, *logit, *known;
    const index_t *anchor, *pairs;
    double *work, *partial;
    unsigned int* barrier;
    int* accepted;
    word_t key;
};

// One sum (or, from n_sum on, one maximum) over all threads of all blocks for each of n values, the same for every thread.
struct Sums {
    double *room, *partial;
    unsigned int *barrier, generation;
    int parity;
};
#define MOST_SUMS 24

__device__ void over_all(double* value, int n, int n_sum, Sums& sums) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    double* out = sums.room + MOST_SUMS * warps;
    double* partial = sums.partial + (index_t)sums.parity * MOST_SUMS * gridDim.x;
    for (int i = 0; i < n; ++i) {
        double v = value[i];
        for (int step = 16; step > 0; step >>= 1) {
            double other = __shfl_xor_sync(0xffffffffu, v, step);
            v = i < n_sum ? v + other : fmax(v, other);
        }
        if (lane == 0) sums.room[i * warps + warp] = v;
    }
    __syncthreads();
    if (threadIdx.x < n) {
        double v = sums.room[threadIdx.x * warps];
        for (int w = 1; w < warps; ++w) {
            double other = sums.room[threadIdx.x * warps + w];
            v = threadIdx.x < n_sum ? v + other : fmax(v, other);
        }
        partial[threadIdx.x * gridDim.x + blockIdx.x] = v;
    }
    grid_barrier(sums.barrier, sums.generation);
    sums.parity = 1 - sums.parity;
    for (int i = warp; i < n; i += warps) {
        double v = i < n_sum ? 0.0 : -INFINITY;
        for (int b = lane; b < gridDim.x; b += 32) {
            double other = read_through(partial + i * gridDim.x + b);
            v = i < n_sum ? v + other : fmax(v, other);
        }
        for (int step = 16; step > 0; step >>= 1) {
            double other = __shfl_xor_sync(0xffffffffu, v, step);
            v = i < n_sum ? v + other : fmax(v, other);
        }
        if (lane == 0) out[i] = v;
    }
    __syncthreads();
    for (int i = 0; i < n; ++i) value[i] = out[i];
    __syncthreads();
}

__device__ inline double rough_exp(double x) {
    double e = 1.0 + fmin(fmax(x, -EXP_FAR), EXP_FAR) / 256.0;
    for (int i = 0; i < 8; ++i) e *= e;
    return e;
}

__device__ inline double slab_at(const Problem& p, index_t d, int k) {
    return p.by_feature ? p.slab[d * p.k + k] : p.slab[k];
}

// Features of this thread: d, d + step, ...; a warp's are next to each other, so that it can share their rows.
#define EACH_FEATURE(d) for (index_t d = thread_number(); d < p.n_features; d += (index_t)gridDim.x * blockDim.x)

// excess[d, :] −= more · first + too · second over the rows of a warp's features, one row after another by all lanes.
__device__ void lower_excess(const Problem& p, index_t d, double more, double too, const double* first,
                             const double* second) {
    int lane = threadIdx.x % 32;
    unsigned int rows = __ballot_sync(0xffffffffu, more != 0.0 || too != 0.0);
    for (; rows; rows &= rows - 1) {
        int from = __ffs(rows) - 1;
        double a = __shfl_sync(0xffffffffu, more, from), b = __shfl_sync(0xffffffffu, too, from);
        double* row = p.excess + (d - lane + from) * p.k;
        for (int t = lane; t < p.k; t += 32) row[t] -= a * first[t] + (second ? b * second[t] : 0.0);
    }
    __syncwarp();
}

// Rows of the work space of a tilt; FLAG is 0 where the feature does not use factor k, 2 for the anchor of j.
enum { WISH, LOADING, OFF, ON, ODDS, SLAB_J, VANISH, WEIGHT, FLAG, WORK_ROWS = 11 };
#define AT(row, d) p.work[(index_t)(row) * p.n_features + (d)]

__device__ inline double log_tilt_of(const Problem& p, index_t d, double c) {
    double miss = AT(WISH, d) - c * AT(LOADING, d), half = 0.5 * miss * miss;
    double on = AT(ODDS, d) - AT(ON, d) * half, off = -AT(OFF, d) * half;
    if (AT(FLAG, d) == 2.0) return on;
    return fmax(on, off) + log1p(exp(-fabs(on - off)));
}

__device__ void add_pull(const Problem& p, index_t d, double centre, double* sum) {
    double g = AT(LOADING, d), wish = AT(WISH, d), on = AT(ON, d), off = AT(OFF, d), miss = wish - centre * g;
    double x = AT(ODDS, d) + 0.5 * (off - on) * miss * miss;
    double pull = AT(FLAG, d) == 2.0 ? on * g : (on + (off - on) / (1.0 + rough_exp(x))) * g;
    sum[0] += pull * g;
    sum[1] += pull * wish;
}

__device__ double log_tilt_proposal(double c, const double* centre, const double* precision) {
    const double weight[3] = {TILT_WEIGHT_0, TILT_WEIGHT_1, TILT_WEIGHT_2};
    double part[3], top = -INFINITY, total = 0.0;
    for (int m = 0; m < 3; ++m) {
        part[m] = log(weight[m]) + 0.5 * log(precision[m]) - 0.5 * precision[m] * (c - centre[m]) * (c - centre[m]);
        top = fmax(top, part[m]);
    }
    for (int m = 0; m < 3; ++m) total += exp(part[m] - top);
    return top + log(total);
}

__device__ Sums begin_sums(const Problem& p, double* room) {
    Sums sums = {room, p.partial, p.barrier, 0, 0};
    return sums;
}

#define SECTIONS 15  // four bisections at a time

COOPERATIVE tilt_pairs(index_t n_features, int k_all, int width, int by_feature, int n_known, int n_pairs, double* loadings,
                  double* excess, double* gram, double* turn, int* usage, const double* noise, const double* slab,
                  const double* logit, const double* known, const index_t* anchor, const index_t* pairs, double* work,
                  double* partial, unsigned int* barrier, int* accepted, word_t key) {
    Problem p = {n_features, k_all, width, by_feature, n_known, n_pairs, loadings, excess, gram, turn, usage, noise, slab,
                 logit, known, anchor, pairs, work, partial, barrier, accepted, key};
    SHARED(double, room);
    Sums sums = begin_sums(p, room);
    double* row_j = room + MOST_SUMS * (blockDim.x / 32 + 1);
    for (int number = 0; number < n_pairs; ++number) {
        int k = (int)p.pairs[2 * number], j = (int)p.pairs[2 * number + 1];
        double power = read_through(p.gram + j * p.k + j), tilt = read_through(p.gram + k * p.k + j) / power;
        for (int t = threadIdx.x; t < p.k; t += blockDim.x) row_j[t] = read_through(p.gram + j * p.k + t);
        double value[MOST_SUMS] = {0.0, 0.0, 0.0, -INFINITY, -INFINITY};
        EACH_FEATURE(d) {
            double g = p.loadings[d * p.width + k];
            AT(FLAG, d) = g == 0.0 ? 0.0 : p.anchor[j] == d ? 2.0 : 1.0;
            if (g == 0.0) continue;
            double own = slab_at(p, d, j), a = p.noise[d] * power, on = a * own / (a + own);
            double wish = p.excess[d * p.k + j] / power + p.loadings[d * p.width + j] + tilt * g;
            AT(WISH, d) = wish;
            AT(LOADING, d) = g;
            AT(OFF, d) = a;
            AT(ON, d) = on;
            AT(ODDS, d) = p.logit[j] + (j < p.n_known ? p.known[d * p.n_known + j] : 0.0) + 0.5 * log(own / (own + a));
            AT(SLAB_J, d) = own;
            AT(VANISH, d) = wish / g;
            AT(WEIGHT, d) = sqrt(a) * fabs(g);
            value[0] += on * g * g;
            value[1] += on * g * wish;
            value[2] += AT(WEIGHT, d);
            value[3] = fmax(value[3], wish / g);
            value[4] = fmax(value[4], -wish / g);
        }
        over_all(value, 5, 3, sums);
        double centre[3], precision[3], weights = value[2], high = value[3], low = -value[4];
        bool none = high == -INFINITY;
        precision[0] = power + value[0];
        centre[0] = value[1] / precision[0];
        centre[1] = centre[0];
        precision[1] = power;
        // the weighted median of the tilts at which loadings vanish, and beside it the mode with most in use
        for (int pass = 0; pass < TILT_BISECTIONS / 4; ++pass) {
            double lows[SECTIONS + 1], highs[SECTIONS + 1], middle[SECTIONS + 1];
            lows[1] = low;
            highs[1] = high;
            for (int i = 1; i <= SECTIONS; ++i) {
                middle[i] = 0.5 * (lows[i] + highs[i]);
                if (2 * i + 1 <= SECTIONS) {
                    lows[2 * i] = lows[i];
                    highs[2 * i] = middle[i];
                    lows[2 * i + 1] = middle[i];
                    highs[2 * i + 1] = highs[i];
                }
            }
            for (int i = 0; i < SECTIONS + 2; ++i) value[i] = 0.0;
            EACH_FEATURE(d) {
                if (AT(FLAG, d) == 0.0) continue;
                double at = AT(VANISH, d), weight = AT(WEIGHT, d);
                for (int i = 1; i <= SECTIONS; ++i) value[i - 1] += at <= middle[i] ? weight : 0.0;
                if (pass < TILT_ROUNDS) add_pull(p, d, centre[1], value + SECTIONS);
            }
            over_all(value, SECTIONS + 2, SECTIONS + 2, sums);
            for (int i = 1; i <= SECTIONS;) {
                if (2.0 * value[i - 1] >= weights) {
                    high = middle[i];
                    i = 2 * i;
                } else {
                    low = middle[i];
                    i = 2 * i + 1;
                }
            }
            if (pass < TILT_ROUNDS) {
                precision[1] = power + value[SECTIONS];
                centre[1] = value[SECTIONS + 1] / precision[1];
            }
        }
        centre[2] = none ? 0.0 : high;
        precision[2] = power;
        for (int round = 0; round < TILT_ROUNDS; ++round) {
            value[0] = value[1] = 0.0;
            EACH_FEATURE(d) if (AT(FLAG, d) != 0.0) add_pull(p, d, centre[2], value);
            over_all(value, 2, 2, sums);
            precision[2] = power + value[0];
            centre[2] = value[1] / precision[2];
        }
        Words words = word_pair(p.key, number, 1, 0, 0);
        double which = to_unit(words.first), accept = to_unit(words.second), next = tilt;
        int m = which < TILT_WEIGHT_0 ? 0 : which < TILT_WEIGHT_0 + TILT_WEIGHT_1 ? 1 : 2;
        double proposal = centre[m] + normal_at(p.key, number, 2) / sqrt(precision[m]);
        value[0] = value[1] = 0.0;
        EACH_FEATURE(d) {
            if (AT(FLAG, d) == 0.0) continue;
            value[0] += log_tilt_of(p, d, proposal);
            value[1] += log_tilt_of(p, d, tilt);
        }
        over_all(value, 2, 2, sums);
        double ratio = value[0] - value[1] - 0.5 * power * (proposal * proposal - tilt * tilt);
        ratio += log_tilt_proposal(tilt, centre, precision) - log_tilt_proposal(proposal, centre, precision);
        if (log(accept) < ratio) {
            next = proposal;
            if (thread_number() == 0) *p.accepted += 1;
        }
        double change = next - tilt;
        int users = 0;
        index_t step = (index_t)gridDim.x * blockDim.x, first = thread_number();
        // whole warps go on together
        for (index_t d = first; d - threadIdx.x % 32 < p.n_features; d += step) {
            double more = 0.0;
            if (d < p.n_features && AT(FLAG, d) != 0.0) {
                double miss = AT(WISH, d) - next * AT(LOADING, d), half = 0.5 * miss * miss;
                double on = AT(ODDS, d) - AT(ON, d) * half, off = -AT(OFF, d) * half;
                word_t position = FEATURES + d;
                double u = to_unit(word_pair(p.key, number, position, 0, 0).first), now = p.loadings[d * p.width + j];
                bool used = AT(FLAG, d) == 2.0 || u * (1.0 + exp(fmin(off - on, 700.0))) < 1.0;
                double value_j = 0.0;
                if (used) {
                    double total = AT(OFF, d) + AT(SLAB_J, d);
                    value_j = AT(OFF, d) * miss / total + normal_at(p.key, number, position) / sqrt(total);
                }
                more = change * AT(LOADING, d) + value_j - now;
                users += (int)used - (int)(now != 0.0);
                p.loadings[d * p.width + j] = value_j;
            }
            lower_excess(p, d, more, 0.0, row_j, NULL);
            if (d < p.n_features && change != 0.0) p.excess[d * p.k + k] += change * p.excess[d * p.k + j];
            __syncwarp();
        }
        if (users) atomicAdd(p.usage + j, users);
        if (blockIdx.x == 0 && change != 0.0) {
            double linked = read_through(p.gram + k * p.k + j) + change * row_j[j];
            __syncthreads();
            for (int t = threadIdx.x; t < p.k; t += blockDim.x) {
                p.turn[t * p.k + k] += change * p.turn[t * p.k + j];
                double now = read_through(p.gram + k * p.k + t) + change * row_j[t];
                if (t == k) now += change * linked;
                p.gram[k * p.k + t] = now;
                p.gram[t * p.k + k] = now;
            }
        }
        grid_barrier(sums.barrier, sums.generation);
    }
}

// Rows of the work space of a rotation.
enum { X_OF, Y_OF, TAU, SLAB_ONE, SLAB_TWO, FIRST, SECOND, TOGETHER };

struct Axes { double c, s, first, both, second; };
struct Odds { double first, second, both; };

__device__ inline Axes axes_of(double angle, double first, double both, double second) {
    double c = cos(angle), s = sin(angle);
    Axes out = {c, s, c * c * first + 2.0 * c * s * both + s * s * second,
                c * s * (second - first) + (c * c - s * s) * both, s * s * first - 2.0 * c * s * both + c * c * second};
    return out;
}

// Weights of the first factor alone, the second alone and both, all over e to the last value.
__device__ inline void choices(const Problem& p, index_t d, const Axes& a, const Odds& odds, bool rough, double* out) {
    double tau = AT(TAU, d), one = AT(SLAB_ONE, d), two = AT(SLAB_TWO, d), x = AT(X_OF, d), y = AT(Y_OF, d);
    double b = tau * (a.c * x + a.s * y), b_too = tau * (a.c * y - a.s * x);
    double q1 = one + tau * a.first, q2 = two + tau * a.second, r = tau * a.both, det = q1 * q2 - r * r;
    double alone = 0.5 * b * b / q1, other = 0.5 * b_too * b_too / q2;
    double together = 0.5 * (b * b * q2 - 2.0 * b * b_too * r + b_too * b_too * q1) / det;
    out[0] = AT(FIRST, d) * odds.first * sqrt(one / q1) * (rough ? rough_exp(alone - together) : exp(alone - together));
    out[1] = AT(SECOND, d) * odds.second * sqrt(two / q2) * (rough ? rough_exp(other - together) : exp(other - together));
    out[2] = odds.both * sqrt(one * two / det);
    out[3] = together;
}

__device__ inline double log_rotation_of(const Problem& p, index_t d, const Axes& a, const Odds& odds, bool rough) {
    double weight[4];
    choices(p, d, a, odds, rough, weight);
    return weight[3] + log(weight[0] + weight[1] + weight[2]);
}

struct Modes { int number, at[ROTATION_MODES]; double weight[ROTATION_MODES], centre[ROTATION_MODES], spread[ROTATION_MODES]; };

__device__ double log_rotation_proposal(double angle, const Modes& modes) {
    const double pi = 3.141592653589793, log_root_2pi = 0.9189385332046727;
    double total = ROTATION_UNIFORM / pi;
    for (int m = 0; m < modes.number; ++m) {
        double apart = angle - modes.centre[m];
        apart -= pi * floor(apart / pi + 0.5);
        for (int wrap = -1; wrap <= 1; ++wrap) {
            double z = (apart + wrap * pi) / modes.spread[m];
            total += modes.weight[m] * exp(-0.5 * z * z - log_root_2pi) / modes.spread[m];
        }
    }
    return log(total);
}

COOPERATIVE rotate_pairs(index_t n_features, int k_all, int width, int by_feature, int n_known, int n_pairs, double* loadings,
                    double* excess, double* gram, double* turn, int* usage, const double* noise, const double* slab,
                    const double* logit, const double* known, const index_t* anchor, const index_t* pairs, double* work,
                    double* partial, unsigned int* barrier, int* accepted, word_t key) {
    Problem p = {n_features, k_all, width, by_feature, n_known, n_pairs, loadings, excess, gram, turn, usage, noise, slab,
                 logit, known, anchor, pairs, work, partial, barrier, accepted, key};
    SHARED(double, room);
    Sums sums = begin_sums(p, room);
    double *row_j = room + MOST_SUMS * (blockDim.x / 32 + 1), *row_k = row_j + p.k;
    const double pi = 3.141592653589793, spacing = pi / ROTATION_GRID;
    for (int number = 0; number < n_pairs; ++number) {
        int j = (int)p.pairs[2 * number], k = (int)p.pairs[2 * number + 1];
        for (int t = threadIdx.x; t < p.k; t += blockDim.x) {
            row_j[t] = read_through(p.gram + j * p.k + t);
            row_k[t] = read_through(p.gram + k * p.k + t);
        }
        __syncthreads();
        double jj = row_j[j], jk = row_j[k], kk = row_k[k], value[MOST_SUMS] = {0.0, 0.0, 0.0};
        EACH_FEATURE(d) {
            double g = p.loadings[d * p.width + j], h = p.loadings[d * p.width + k], tau = p.noise[d];
            AT(FLAG, d) = g != 0.0 || h != 0.0 ? 1.0 : 0.0;
            if (g == 0.0 && h == 0.0) continue;
            double x = p.excess[d * p.k + j] + g * jj + h * jk, y = p.excess[d * p.k + k] + g * jk + h * kk;
            AT(X_OF, d) = x;
            AT(Y_OF, d) = y;
            AT(TAU, d) = tau;
            AT(SLAB_ONE, d) = slab_at(p, d, j);
            AT(SLAB_TWO, d) = slab_at(p, d, k);
            AT(FIRST, d) = p.anchor[k] == d ? 0.0 : k < p.n_known ? exp(-p.known[d * p.n_known + k]) : 1.0;
            AT(SECOND, d) = p.anchor[j] == d ? 0.0 : j < p.n_known ? exp(-p.known[d * p.n_known + j]) : 1.0;
            value[0] += tau * x * x;
            value[1] += tau * x * y;
            value[2] += tau * y * y;
        }
        over_all(value, 3, 3, sums);
        double frame_turn = 0.5 * atan2(2.0 * value[1], value[0] - value[2]), angle = -frame_turn;
        Axes frame = axes_of(frame_turn, jj, jk, kk);
        double most = fmax(fmax(p.logit[j], p.logit[k]), p.logit[j] + p.logit[k]);
        Odds odds = {exp(p.logit[j] - most), exp(p.logit[k] - most), exp(p.logit[j] + p.logit[k] - most)};
        for (int i = 0; i < ROTATION_GRID; ++i) value[i] = 0.0;
        EACH_FEATURE(d) {
            if (AT(FLAG, d) == 0.0) continue;
            double x = AT(X_OF, d), y = AT(Y_OF, d);
            AT(X_OF, d) = frame.c * x + frame.s * y;
            AT(Y_OF, d) = frame.c * y - frame.s * x;
            for (int i = 0; i < ROTATION_GRID; ++i)
                value[i] += log_rotation_of(p, d, axes_of(i * spacing, frame.first, frame.both, frame.second), odds, true);
        }
        over_all(value, ROTATION_GRID, ROTATION_GRID, sums);
        Modes modes;
        modes.number = 0;
        double height[ROTATION_MODES], highest = -INFINITY;
        for (int m = 0; m < ROTATION_MODES; ++m) {
            int best = -1;
            for (int i = 0; i < ROTATION_GRID; ++i) {
                bool peak = value[i] >= value[(i + ROTATION_GRID - 1) % ROTATION_GRID]
                            && value[i] >= value[(i + 1) % ROTATION_GRID];
                for (int n = 0; n < modes.number; ++n) peak = peak && modes.at[n] != i;
                if (peak && (best < 0 || value[i] > value[best])) best = i;
            }
            if (m == 0 && best >= 0) highest = value[best];
            if (best < 0 || value[best] < highest - ROTATION_DEPTH) break;
            modes.at[m] = best;
            modes.centre[m] = best * spacing;
            modes.spread[m] = 1.0;
            height[m] = value[best];
            modes.number = m + 1;
        }
        for (int round = 0; round < ROTATION_ROUNDS; ++round) {
            for (int i = 0; i < 2 * modes.number; ++i) value[i] = 0.0;
            EACH_FEATURE(d) {
                if (AT(FLAG, d) == 0.0) continue;
                for (int i = 0; i < 2 * modes.number; ++i) {
                    double at = modes.centre[i / 2] + (i % 2 ? ROTATION_STEP : -ROTATION_STEP);
                    value[i] += log_rotation_of(p, d, axes_of(at, frame.first, frame.both, frame.second), odds, true);
                }
            }
            over_all(value, 2 * modes.number, 2 * modes.number, sums);
            for (int m = 0; m < modes.number; ++m) {
                double low = value[2 * m], high = value[2 * m + 1];
                double bend = fmax((2.0 * height[m] - low - high) / (ROTATION_STEP * ROTATION_STEP), ROTATION_BEND);
                double move = 0.5 * (high - low) / ROTATION_STEP / bend;
                modes.centre[m] += fmin(fmax(move, -0.5 * spacing), 0.5 * spacing);
                modes.spread[m] = 1.0 / sqrt(bend);
            }
            for (int m = 0; m < modes.number; ++m) value[m] = 0.0;
            EACH_FEATURE(d) {
                if (AT(FLAG, d) == 0.0) continue;
                for (int m = 0; m < modes.number; ++m)
                    value[m] += log_rotation_of(
                        p, d, axes_of(modes.centre[m], frame.first, frame.both, frame.second), odds, true);
            }
            over_all(value, modes.number, modes.number, sums);
            for (int m = 0; m < modes.number; ++m) height[m] = value[m];
        }
        double top = -INFINITY, total = 0.0;
        for (int m = 0; m < modes.number; ++m) top = fmax(top, height[m]);
        for (int m = 0; m < modes.number; ++m) {
            modes.weight[m] = fmax(exp(height[m] - top), ROTATION_FLOOR) * modes.spread[m];
            total += modes.weight[m];
        }
        for (int m = 0; m < modes.number; ++m) modes.weight[m] *= (1.0 - ROTATION_UNIFORM) / total;
        Words words = word_pair(p.key, number, 1, 0, 0);
        double which = to_unit(words.first), accept = to_unit(words.second);
        double next = pi * to_unit(word_pair(p.key, number, 0, 0, 0).first);
        for (int m = 0; m < modes.number; ++m) {
            if (0.0 <= which && which < modes.weight[m]) next = modes.centre[m] + modes.spread[m] * normal_at(p.key, number, 2);
            which -= modes.weight[m];
        }
        value[0] = value[1] = 0.0;
        Axes there = axes_of(next, frame.first, frame.both, frame.second);
        Axes here = axes_of(angle, frame.first, frame.both, frame.second);
        EACH_FEATURE(d) {
            if (AT(FLAG, d) == 0.0) continue;
            value[0] += log_rotation_of(p, d, there, odds, false);
            value[1] += log_rotation_of(p, d, here, odds, false);
        }
        over_all(value, 2, 2, sums);
        double ratio = value[0] - value[1] + log_rotation_proposal(angle, modes) - log_rotation_proposal(next, modes);
        if (log(accept) < ratio) {
            if (thread_number() == 0) *p.accepted += 1;
        } else {
            next = angle;
        }
        Axes a = axes_of(next, frame.first, frame.both, frame.second);
        double c = cos(next - angle), s = sin(next - angle);
        // S of the turned scores, these two rows of it, in every block
        for (int t = threadIdx.x; t < p.k; t += blockDim.x) {
            double x = row_j[t], y = row_k[t];
            row_j[t] = c * x + s * y;
            row_k[t] = c * y - s * x;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            double x = row_j[j], y = row_j[k];
            row_j[j] = c * x + s * y;
            row_j[k] = c * y - s * x;
            x = row_k[j];
            y = row_k[k];
            row_k[j] = c * x + s * y;
            row_k[k] = c * y - s * x;
        }
        __syncthreads();
        int users_j = 0, users_k = 0;
        index_t step = (index_t)gridDim.x * blockDim.x, first = thread_number();
        for (index_t d = first; d - threadIdx.x % 32 < p.n_features; d += step) {
            double more = 0.0, too = 0.0;
            if (d < p.n_features) {
                double *e = p.excess + d * p.k, x = e[j], y = e[k];
                e[j] = c * x + s * y;
                e[k] = c * y - s * x;
                if (AT(FLAG, d) != 0.0) {
                    double g = p.loadings[d * p.width + j], h = p.loadings[d * p.width + k], weight[4];
                    choices(p, d, a, odds, false, weight);
                    word_t position = FEATURES + 2 * d;
                    double u = to_unit(word_pair(p.key, number, position, 0, 0).first) * (weight[0] + weight[1] + weight[2]);
                    bool one = u >= weight[1], two = u < weight[1] || u >= weight[1] + weight[0];
                    double tau = AT(TAU, d), b = tau * (a.c * AT(X_OF, d) + a.s * AT(Y_OF, d));
                    double b_too = tau * (a.c * AT(Y_OF, d) - a.s * AT(X_OF, d));
                    double p_one = AT(SLAB_ONE, d) + tau * a.first, p_two = AT(SLAB_TWO, d) + tau * a.second, r = tau * a.both;
                    double value_j = 0.0, value_k = 0.0;
                    if (two) {
                        double precision = p_two, mean = b_too;
                        if (one) {
                            precision = p_two - r * r / p_one;
                            mean = b_too - r * b / p_one;
                        }
                        value_k = mean / precision + normal_at(p.key, number, position + 1) / sqrt(precision);
                    }
                    if (one) value_j = (b - r * value_k) / p_one + normal_at(p.key, number, position) / sqrt(p_one);
                    more = value_j - (c * g + s * h);
                    too = value_k - (c * h - s * g);
                    users_j += (int)one - (int)(g != 0.0);
                    users_k += (int)two - (int)(h != 0.0);
                    p.loadings[d * p.width + j] = value_j;
                    p.loadings[d * p.width + k] = value_k;
                }
            }
            __syncwarp();
            lower_excess(p, d, more, too, row_j, row_k);
        }
        if (users_j) atomicAdd(p.usage + j, users_j);
        if (users_k) atomicAdd(p.usage + k, users_k);
        if (blockIdx.x == 0) {
            for (int t = threadIdx.x; t < p.k; t += blockDim.x) {
                double x = p.turn[t * p.k + j], y = p.turn[t * p.k + k];
                p.turn[t * p.k + j] = c * x + s * y;
                p.turn[t * p.k + k] = c * y - s * x;
                p.gram[j * p.k + t] = p.gram[t * p.k + j] = row_j[t];
            }
            __syncthreads();
            for (int t = threadIdx.x; t < p.k; t += blockDim.x) p.gram[k * p.k + t] = p.gram[t * p.k + k] = row_k[t];
        }
        grid_barrier(sums.barrier, sums.generation);
    }
}
