// Tilts and rotations of pairs of factors, one pair after another in a single launch: the twins of kernels/pair_kernels.py
// and kernels/rotation_kernels.py. Every block keeps to features of its own. Of those that a pair concerns it makes a list
// with their numbers; a warp adds up one sum over the list, or a part of it where sums are few; all blocks wait for each
// other's sums, and every block then decides the same.

// What all pairs share. loadings (D, K) in rows of `width`, changed; excess (D, K) = (Y − G Xᵀ) X; gram, turn (K, K);
// slab (K,), or (D, K) where by_feature; known (D, n_known); work: room for the blocks' lists, NULL where that is in their
// shared memory.
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

#define SECTIONS 31  // five bisections at a time
#define MOST_SUMS 33

struct Axes { double c, s, first, both, second; };
struct Odds { double first, second, both; };
struct Draws { double which, log_accept, uniform, units, normal; };
struct Modes {
    int number;
    double height[ROTATION_MODES], weight[ROTATION_MODES], centre[ROTATION_MODES], spread[ROTATION_MODES];
};
// In shared memory; the rows of S and the list come after it.
struct Room {
    int count[32];
    double part[MOST_SUMS], value[MOST_SUMS], density[2], angle, next;
    Axes axes[ROTATION_GRID];
    Modes modes;
    Odds odds;
    Draws draws;
};
static_assert(sizeof(Room) <= 8 * 256, "see _ROOM in kernels/gpu.py");
static_assert(ROTATION_GRID <= 32 && 3 * ROTATION_MODES <= ROTATION_GRID, "what one warp does at once");
static_assert(TILT_BISECTIONS % 5 == 0 && TILT_ROUNDS <= TILT_BISECTIONS / 5, "what each pass is for");

// What a block has to itself: its features and those listed of them, and the pair that it is at.
struct Own {
    index_t start;
    int size, each, listed, number, turns;
    unsigned int generation;
    double* work;
    Room* room;
};
// Rows of a list: a feature, how much of the pair's rows is to be taken off its row of the excess; and then a tilt's.
enum { FEATURE, MORE, TOO, WISH, LOADING, OFF, ON, ODDS, SLAB_J, VANISH, WEIGHT, WORK_ROWS };
#define AT(row, at) own.work[(row) * own.each + (at)]

// Rows of S of both factors of a pair, in the order of `pairs`; those of the last pair are there, too.
__device__ inline double* rows_of(const Problem& p, const Own& own, int number) {
    return (double*)(own.room + 1) + (number & 1) * 2 * p.k;
}

__device__ inline Own begin(const Problem& p, Room* room) {
    int each = (int)((p.n_features + gridDim.x - 1) / gridDim.x);
    index_t start = (index_t)blockIdx.x * each, left = max(p.n_features - start, (index_t)0);
    double* work = p.work ? p.work + start * WORK_ROWS : (double*)(room + 1) + 4 * p.k;
    Own own = {start, (int)min(left, (index_t)each), each, 0, -1, 0, 0, work, room};
    return own;
}

// S as the last pair has left it: its own rows may not have been written yet, and others write none of the rest.
__device__ inline double gram_at(const Problem& p, const Own& own, int a, int b) {
    for (int i = 0; own.number > 0 && i < 2; ++i) {
        int k = (int)p.pairs[2 * (own.number - 1) + i];
        if (a == k || b == k) return rows_of(p, own, own.number - 1)[i * p.k + (a == k ? b : a)];
    }
    return read_through(p.gram + a * p.k + b);
}

// Go on to the next pair: its rows of S and its random numbers, which are there when its features are listed.
__device__ inline void next_pair(const Problem& p, Own& own) {
    own.number += 1;
    for (int t = threadIdx.x; t < 2 * p.k; t += blockDim.x)
        rows_of(p, own, own.number)[t] = gram_at(p, own, (int)p.pairs[2 * own.number + t / p.k], t % p.k);
    if (threadIdx.x == blockDim.x - 1) {
        Words words = word_pair(p.key, own.number, 1, 0, 0), more = word_pair(p.key, own.number, 0, 0, 0);
        Draws draws = {to_unit(words.first), log(to_unit(words.second)), to_unit(more.first), to_unit(more.second),
                       normal_at(p.key, own.number, 2)};
        own.room->draws = draws;
    }
}

// List the block's features that are `used`, in their order; fill(d, at) writes the numbers of the one in place `at`.
template <typename Used, typename Fill>
__device__ void list_features(Own& own, Used used, Fill fill) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, *count = own.room->count;
    int base = 0;
    own.listed = 0;
    do {
        index_t d = own.start + base + threadIdx.x;
        bool mine = d < own.start + own.size && used(d);
        unsigned int vote = __ballot_sync(0xffffffffu, mine);
        if (lane == 0) count[warp] = __popc(vote);
        __syncthreads();
        int at = own.listed + __popc(vote & ((1u << lane) - 1u));
        for (int w = 0; w < blockDim.x / 32 && base + 32 * w < own.size; ++w) {
            at += w < warp ? count[w] : 0;
            own.listed += count[w];
        }
        if (mine) fill(d, at);
        base += blockDim.x;
        __syncthreads();
    } while (base < own.size);
}

__device__ inline double joined(double a, double b, bool sum) { return sum ? a + b : fmax(a, b); }

__device__ inline double over_warp(double value, bool sum) {
    for (int step = 16; step > 0; step >>= 1) value = joined(value, __shfl_xor_sync(0xffffffffu, value, step), sum);
    return value;
}

// The sum (or, from n_sum on, the maximum) of term(i, at) over the lists of all blocks for each of n values, the same in
// every block; in shared memory until the next.
template <typename Term>
__device__ const double* over_all(const Problem& p, Own& own, int n, int n_sum, Term term) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, parts = max(warps / max(n, 1), 1);
    double *part = own.room->part, *partial = p.partial + (index_t)own.turns * MOST_SUMS * gridDim.x;
    for (int w = warp; w < n * parts; w += warps) {
        int i = w % n;
        double v = i < n_sum ? 0.0 : -INFINITY;
        for (int at = w / n * 32 + lane; at < own.listed; at += 32 * parts) v = joined(v, term(i, at), i < n_sum);
        v = over_warp(v, i < n_sum);
        if (lane == 0) part[w] = v;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        double v = part[i];
        for (int w = i + n; w < n * parts; w += n) v = joined(v, part[w], i < n_sum);
        partial[i * gridDim.x + blockIdx.x] = v;
    }
    grid_barrier(p.barrier, own.generation);
    own.turns = 1 - own.turns;
    for (int i = warp; i < n; i += warps) {
        double v = i < n_sum ? 0.0 : -INFINITY;
        for (int b = lane; b < gridDim.x; b += 32) v = joined(v, read_through(partial + i * gridDim.x + b), i < n_sum);
        v = over_warp(v, i < n_sum);
        if (lane == 0) own.room->value[i] = v;
    }
    __syncthreads();
    return own.room->value;
}

// The first block writes what a pair has changed: nobody reads that before all have met again.
__device__ inline void put_rows(const Problem& p, const double* rows, int first, int second, int t) {
    p.gram[first * p.k + t] = p.gram[t * p.k + first] = rows[t];
    p.gram[second * p.k + t] = p.gram[t * p.k + second] = rows[p.k + t];
}

// Take what was added to listed features' loadings off their rows of the excess, by the new rows of S.
__device__ inline void lower_excess(const Problem& p, const Own& own, const double* row, const double* row_too) {
    __syncthreads();
    for (int i = threadIdx.x; i < own.listed * p.k; i += blockDim.x) {
        int at = i / p.k, t = i % p.k;
        p.excess[(index_t)AT(FEATURE, at) * p.k + t] -= AT(MORE, at) * row[t] + AT(TOO, at) * row_too[t];
    }
}

__device__ inline double rough_exp(double x) {
    double e = 1.0 + fmin(fmax(x, -EXP_FAR), EXP_FAR) / 256.0;
    for (int i = 0; i < 8; ++i) e *= e;
    return e;
}

__device__ inline double slab_at(const Problem& p, index_t d, int k) {
    return p.by_feature ? p.slab[d * p.k + k] : p.slab[k];
}

__device__ inline double log_tilt_of(const Own& own, int at, double c, index_t anchor) {
    double miss = AT(WISH, at) - c * AT(LOADING, at), half = 0.5 * miss * miss;
    double on = AT(ODDS, at) - AT(ON, at) * half, off = -AT(OFF, at) * half;
    if (AT(FEATURE, at) == anchor) return on;
    return fmax(on, off) + log1p(exp(-fabs(on - off)));
}

// Of a reweighted fit of the tilt: the feature's part of the precision, or of that times the centre.
__device__ inline double pull_of(const Own& own, int at, double centre, index_t anchor, bool to_wish) {
    double g = AT(LOADING, at), wish = AT(WISH, at), on = AT(ON, at), off = AT(OFF, at), miss = wish - centre * g;
    double x = AT(ODDS, at) + 0.5 * (off - on) * miss * miss;
    double pull = AT(FEATURE, at) == anchor ? on * g : (on + (off - on) / (1.0 + rough_exp(x))) * g;
    return pull * (to_wish ? wish : g);
}

// Section 1 is the middle of an interval, 2i and 2i + 1 are those of the parts below and above section i.
__device__ inline double middle_of(int section, double low, double high) {
    int step = 1;
    while (2 * step <= section) step *= 2;
    for (step /= 2; step; step /= 2) (section & step ? low : high) = 0.5 * (low + high);
    return 0.5 * (low + high);
}

__device__ double log_tilt_proposal(double c, const double* centre, const double* precision) {
    const double weight[3] = {TILT_WEIGHT_0, TILT_WEIGHT_1, TILT_WEIGHT_2};
    double part[3], top = -INFINITY, total = 0.0;
    for (int m = 0; m < 3; ++m) {
        part[m] = log(weight[m] * sqrt(precision[m])) - 0.5 * precision[m] * (c - centre[m]) * (c - centre[m]);
        top = fmax(top, part[m]);
    }
    for (int m = 0; m < 3; ++m) total += exp(part[m] - top);
    return top + log(total);
}

COOPERATIVE tilt_pairs(index_t n_features, int k_all, int width, int by_feature, int n_known, int n_pairs, double* loadings,
                  double* excess, double* gram, double* turn, int* usage, const double* noise, const double* slab,
                  const double* logit, const double* known, const index_t* anchor, const index_t* pairs, double* work,
                  double* partial, unsigned int* barrier, int* accepted, word_t key) {
    Problem p = {n_features, k_all, width, by_feature, n_known, n_pairs, loadings, excess, gram, turn, usage, noise, slab,
                 logit, known, anchor, pairs, work, partial, barrier, accepted, key};
    SHARED(Room, room);
    Own own = begin(p, room);
    for (int number = 0; number < n_pairs; ++number) {
        int k = (int)p.pairs[2 * number], j = (int)p.pairs[2 * number + 1];
        next_pair(p, own);
        double *row_k = rows_of(p, own, number), *row_j = row_k + p.k;
        index_t kept = p.anchor[j];
        auto used = [&](index_t d) { return p.loadings[d * p.width + k] != 0.0; };
        list_features(own, used, [&](index_t d, int at) {
            double g = p.loadings[d * p.width + k], slab_j = slab_at(p, d, j), a = p.noise[d] * row_j[j];
            double wish = (p.excess[d * p.k + j] + row_k[j] * g) / row_j[j] + p.loadings[d * p.width + j];
            AT(FEATURE, at) = (double)d;
            AT(WISH, at) = wish;
            AT(LOADING, at) = g;
            AT(OFF, at) = a;
            AT(ON, at) = a * slab_j / (a + slab_j);
            AT(ODDS, at) = p.logit[j] + (j < p.n_known ? p.known[d * p.n_known + j] : 0.0) + 0.5 * log(slab_j / (slab_j + a));
            AT(SLAB_J, at) = slab_j;
            AT(VANISH, at) = wish / g;
            AT(WEIGHT, at) = sqrt(a) * fabs(g);
        });
        double power = row_j[j], linked = row_k[j], tilt = linked / power, centre[3], precision[3];
        const double* value = over_all(p, own, 5, 3, [&](int i, int at) {
            if (i < 2) return AT(ON, at) * AT(LOADING, at) * (i ? AT(WISH, at) : AT(LOADING, at));
            return i == 2 ? AT(WEIGHT, at) : i == 3 ? AT(VANISH, at) : -AT(VANISH, at);
        });
        double weights = value[2], high = value[3], low = -value[4];
        bool none = high == -INFINITY;
        precision[0] = power + value[0];
        centre[1] = centre[0] = value[1] / precision[0];
        // the weighted median of the tilts at which loadings vanish, and beside it the mode with most in use
        for (int pass = 0; pass < TILT_BISECTIONS / 5; ++pass) {
            int n = pass < TILT_ROUNDS ? SECTIONS + 2 : SECTIONS;
            value = over_all(p, own, n, n, [&](int i, int at) {
                if (i >= SECTIONS) return pull_of(own, at, centre[1], kept, i > SECTIONS);
                return AT(VANISH, at) <= middle_of(i + 1, low, high) ? AT(WEIGHT, at) : 0.0;
            });
            for (int i = 1; i <= SECTIONS;) {
                bool below = 2.0 * value[i - 1] >= weights;
                (below ? high : low) = 0.5 * (low + high);
                i = 2 * i + !below;
            }
            if (pass < TILT_ROUNDS) {
                precision[1] = power + value[SECTIONS];
                centre[1] = value[SECTIONS + 1] / precision[1];
            }
        }
        centre[2] = none ? 0.0 : high;
        for (int round = 0; round < TILT_ROUNDS; ++round) {
            value = over_all(p, own, 2, 2, [&](int i, int at) { return pull_of(own, at, centre[2], kept, i > 0); });
            precision[2] = power + value[0];
            centre[2] = value[1] / precision[2];
        }
        Draws draws = room->draws;
        bool first = draws.which < TILT_WEIGHT_0, third = draws.which >= TILT_WEIGHT_0 + TILT_WEIGHT_1;
        double proposal = first ? centre[0] : third ? centre[2] : centre[1];
        proposal += draws.normal / sqrt(first ? precision[0] : third ? precision[2] : precision[1]);
        // by the last warp, for which there seldom are features
        if (threadIdx.x + 2 >= blockDim.x) {
            int i = threadIdx.x + 2 - blockDim.x;
            room->density[i] = log_tilt_proposal(i ? tilt : proposal, centre, precision);
        }
        value = over_all(p, own, 2, 2, [&](int i, int at) { return log_tilt_of(own, at, i ? tilt : proposal, kept); });
        double ratio = value[0] - value[1] - 0.5 * power * (proposal * proposal - tilt * tilt);
        double next = draws.log_accept < ratio + room->density[1] - room->density[0] ? proposal : tilt;
        double change = next - tilt;
        if (next != tilt && thread_number() == 0) *p.accepted += 1;
        if (change != 0.0) {
            linked += change * power;
            for (index_t d = own.start + threadIdx.x; d < own.start + own.size; d += blockDim.x)
                p.excess[d * p.k + k] += change * p.excess[d * p.k + j];
            for (int t = threadIdx.x; t < p.k; t += blockDim.x) {
                row_k[t] = t == j ? linked : row_k[t] + change * row_j[t];
                if (t == k) {
                    row_k[k] += change * linked;
                    row_j[k] = linked;
                }
                if (blockIdx.x == 0) {
                    p.turn[t * p.k + k] += change * p.turn[t * p.k + j];
                    put_rows(p, row_k, k, j, t);
                }
            }
        }
        int users = 0;
        for (int at = threadIdx.x; at < own.listed; at += blockDim.x) {
            index_t d = (index_t)AT(FEATURE, at);
            double miss = AT(WISH, at) - next * AT(LOADING, at), half = 0.5 * miss * miss, value_j = 0.0;
            double on = AT(ODDS, at) - AT(ON, at) * half, off = -AT(OFF, at) * half, *now = p.loadings + d * p.width + j;
            word_t position = FEATURES + d;
            double u = to_unit(word_pair(p.key, number, position, 0, 0).first);
            if (d == kept || u * (1.0 + exp(fmin(off - on, 700.0))) < 1.0) {
                double total = AT(OFF, at) + AT(SLAB_J, at);
                value_j = AT(OFF, at) * miss / total + normal_at(p.key, number, position) / sqrt(total);
                ++users;
            }
            AT(MORE, at) = change * AT(LOADING, at) + value_j - *now;
            AT(TOO, at) = 0.0;
            users -= *now != 0.0;
            *now = value_j;
        }
        if (users) atomicAdd(p.usage + j, users);
        lower_excess(p, own, row_j, row_k);
    }
}

// Rows of the list of a rotation, after those of both.
enum { X_OF = TOO + 1, Y_OF, TAU, SLAB_ONE, SLAB_TWO, FIRST, SECOND };

// Cosine and sine of the angle by which the pair's scores are turned, and their products then.
__device__ inline Axes axes_of(double angle, double first, double both, double second) {
    double c = cos(angle), s = sin(angle);
    Axes out = {c, s, c * c * first + 2.0 * c * s * both + s * s * second,
                c * s * (second - first) + (c * c - s * s) * both, s * s * first - 2.0 * c * s * both + c * c * second};
    return out;
}

// Weights of the first factor alone, the second alone and both, all over e to the last value.
__device__ inline void choices(const Own& own, int at, const Axes& a, const Odds& odds, bool rough, double* out) {
    double tau = AT(TAU, at), one = AT(SLAB_ONE, at), two = AT(SLAB_TWO, at), x = AT(X_OF, at), y = AT(Y_OF, at);
    double b = tau * (a.c * x + a.s * y), b_too = tau * (a.c * y - a.s * x);
    double q1 = one + tau * a.first, q2 = two + tau * a.second, r = tau * a.both;
    double by_1 = 1.0 / q1, by_2 = 1.0 / q2, by_det = 1.0 / (q1 * q2 - r * r);
    double together = 0.5 * (b * b * q2 - 2.0 * b * b_too * r + b_too * b_too * q1) * by_det;
    double alone = 0.5 * b * b * by_1 - together, other = 0.5 * b_too * b_too * by_2 - together;
    out[0] = AT(FIRST, at) * odds.first * sqrt(one * by_1) * (rough ? rough_exp(alone) : exp(alone));
    out[1] = AT(SECOND, at) * odds.second * sqrt(two * by_2) * (rough ? rough_exp(other) : exp(other));
    out[2] = odds.both * sqrt(one * two * by_det);
    out[3] = together;
}

__device__ inline double log_rotation_of(const Own& own, int at, int number, bool rough) {
    double weight[4];
    choices(own, at, own.room->axes[number], own.room->odds, rough, weight);
    return weight[3] + log(weight[0] + weight[1] + weight[2]);
}

// The highest modes of a grid over half a circle, by its first warp.
__device__ void find_modes(const double* value, double spacing, Modes& modes) {
    int i = threadIdx.x, above = 0;
    double here = value[i % ROTATION_GRID], highest = -INFINITY;
    bool peak = i < ROTATION_GRID && here >= value[(i + ROTATION_GRID - 1) % ROTATION_GRID]
                && here >= value[(i + 1) % ROTATION_GRID];
    for (unsigned int rest = __ballot_sync(0xffffffffu, peak); rest; rest &= rest - 1) {
        int n = __ffs(rest) - 1;
        highest = fmax(highest, value[n]);
        above += value[n] > here || (value[n] == here && n < i);
    }
    bool chosen = peak && above < ROTATION_MODES && here >= highest - ROTATION_DEPTH;
    int number = __popc(__ballot_sync(0xffffffffu, chosen));
    if (i == 0) modes.number = number;
    if (chosen) modes.centre[above] = i * spacing;
}

__device__ void weigh_modes(Modes& modes) {
    double top = -INFINITY, total = 0.0;
    for (int m = 0; m < modes.number; ++m) top = fmax(top, modes.height[m]);
    for (int m = 0; m < modes.number; ++m) {
        modes.weight[m] = fmax(exp(modes.height[m] - top), ROTATION_FLOOR) * modes.spread[m];
        total += modes.weight[m];
    }
    for (int m = 0; m < modes.number; ++m) modes.weight[m] *= (1.0 - ROTATION_UNIFORM) / total;
}

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
    SHARED(Room, room);
    Own own = begin(p, room);
    Modes& modes = room->modes;
    const double pi = 3.141592653589793, spacing = pi / ROTATION_GRID;
    int thread = threadIdx.x;
    for (int number = 0; number < n_pairs; ++number) {
        int j = (int)p.pairs[2 * number], k = (int)p.pairs[2 * number + 1];
        next_pair(p, own);
        double *row_j = rows_of(p, own, number), *row_k = row_j + p.k;
        if (thread + 1 == blockDim.x) {
            double one = p.logit[j], two = p.logit[k], most = fmax(fmax(one, two), one + two);
            room->odds = {exp(one - most), exp(two - most), exp(one + two - most)};
        }
        // in units of the slabs the first factor's scores are divided by `root`, and have the precision `wide`
        __syncthreads();
        double wide = 1.0;
        if (room->draws.units < ROTATION_SLABS)
            wide = fmin(fmax(slab_at(p, 0, j) / slab_at(p, 0, k), 1.0 / ROTATION_WIDEST), ROTATION_WIDEST);
        double root = sqrt(wide);
        auto used = [&](index_t d) { return p.loadings[d * p.width + j] != 0.0 || p.loadings[d * p.width + k] != 0.0; };
        list_features(own, used, [&](index_t d, int at) {
            double g = p.loadings[d * p.width + j], h = p.loadings[d * p.width + k];
            AT(FEATURE, at) = (double)d;
            AT(X_OF, at) = (p.excess[d * p.k + j] + g * row_j[j] + h * row_j[k]) / root;
            AT(Y_OF, at) = p.excess[d * p.k + k] + g * row_j[k] + h * row_k[k];
            AT(TAU, at) = p.noise[d];
            AT(SLAB_ONE, at) = slab_at(p, d, j) / wide;
            AT(SLAB_TWO, at) = slab_at(p, d, k);
            AT(FIRST, at) = p.anchor[k] == d ? 0.0 : k < p.n_known ? exp(-p.known[d * p.n_known + k]) : 1.0;
            AT(SECOND, at) = p.anchor[j] == d ? 0.0 : j < p.n_known ? exp(-p.known[d * p.n_known + j]) : 1.0;
        });
        double first = row_j[j] / wide, both = row_j[k] / root, second = row_k[k];
        const double* value = over_all(p, own, 3, 3, [&](int i, int at) {
            return AT(TAU, at) * (i < 2 ? AT(X_OF, at) : AT(Y_OF, at)) * (i < 1 ? AT(X_OF, at) : AT(Y_OF, at));
        });
        // angles count from the principal axes of these products and S together, from which the pair is at `angle`
        if (thread < 32) {
            double angle = -0.5 * atan2(2.0 * (value[1] + both), value[0] + first - value[2] - second);
            if (thread == 0) room->angle = angle;
            if (thread < ROTATION_GRID) room->axes[thread] = axes_of(thread * spacing - angle, first, both, second);
        }
        __syncthreads();
        // log densities of the angles whose axes are there
        auto densities = [&](int n, bool rough) {
            over_all(p, own, n, n, [&](int i, int at) { return log_rotation_of(own, at, i, rough); });
            if (thread < n) room->value[thread] -= 0.5 * (wide - 1.0) * room->axes[thread].first;
            __syncthreads();
            return room->value;
        };
        value = densities(ROTATION_GRID, true);
        if (thread < 32) find_modes(value, spacing, modes);
        __syncthreads();
        // Newton's method: the density at the modes, after the first time, and before the last on both sides of them
        for (int round = 0; round <= ROTATION_ROUNDS; ++round) {
            int n = modes.number, all = round < ROTATION_ROUNDS ? 3 * n : n;
            if (thread < all) {
                double beside = thread < n ? 0.0 : thread < 2 * n ? -ROTATION_STEP : ROTATION_STEP;
                room->axes[thread] = axes_of(modes.centre[thread % n] + beside - room->angle, first, both, second);
            }
            __syncthreads();
            value = densities(all, true);
            if (thread < n) {
                double height = modes.height[thread] = value[thread];
                if (round < ROTATION_ROUNDS) {
                    double low = value[n + thread], high = value[2 * n + thread];
                    double bend = fmax((2.0 * height - low - high) / (ROTATION_STEP * ROTATION_STEP), ROTATION_BEND);
                    double move = 0.5 * (high - low) / ROTATION_STEP / bend;
                    modes.centre[thread] += fmin(fmax(move, -0.5 * spacing), 0.5 * spacing);
                    modes.spread[thread] = 1.0 / sqrt(bend);
                }
            }
            __syncthreads();
        }
        if (thread == 0) {
            weigh_modes(modes);
            double which = room->draws.which, next = pi * room->draws.uniform;
            for (int m = 0; m < modes.number; ++m) {
                if (0.0 <= which && which < modes.weight[m]) next = modes.centre[m] + modes.spread[m] * room->draws.normal;
                which -= modes.weight[m];
            }
            room->axes[0] = axes_of(next - room->angle, first, both, second);
            room->axes[1] = axes_of(0.0, first, both, second);
            room->next = next;
        }
        __syncthreads();
        // by the last warp, for which there seldom are features
        if (thread + 2 >= blockDim.x) {
            int i = thread + 2 - blockDim.x;
            room->density[i] = log_rotation_proposal(i ? room->angle : room->next, modes);
        }
        value = densities(2, false);
        bool turns = room->draws.log_accept < value[0] - value[1] + room->density[1] - room->density[0];
        Axes a = room->axes[turns ? 0 : 1];
        if (turns && thread_number() == 0) *p.accepted += 1;
        if (turns) {
            for (index_t d = own.start + thread; d < own.start + own.size; d += blockDim.x) {
                double *e = p.excess + d * p.k, x = e[j] / root, y = e[k];
                e[j] = (a.c * x + a.s * y) * root;
                e[k] = a.c * y - a.s * x;
            }
            for (int t = thread; t < p.k; t += blockDim.x) {
                double x = row_j[t] / root, y = row_k[t];
                row_j[t] = root * (t == j ? a.first * root : t == k ? a.both : a.c * x + a.s * y);
                row_k[t] = t == j ? a.both * root : t == k ? a.second : a.c * y - a.s * x;
                if (blockIdx.x != 0) continue;
                put_rows(p, row_j, j, k, t);
                x = p.turn[t * p.k + j] / root, y = p.turn[t * p.k + k];
                p.turn[t * p.k + j] = (a.c * x + a.s * y) * root;
                p.turn[t * p.k + k] = a.c * y - a.s * x;
            }
        }
        int users_j = 0, users_k = 0;
        for (int at = thread; at < own.listed; at += blockDim.x) {
            index_t d = (index_t)AT(FEATURE, at);
            double *g = p.loadings + d * p.width + j, *h = p.loadings + d * p.width + k, weight[4];
            choices(own, at, a, room->odds, false, weight);
            word_t position = FEATURES + 2 * d;
            double u = to_unit(word_pair(p.key, number, position, 0, 0).first) * (weight[0] + weight[1] + weight[2]);
            bool one = u >= weight[1], two = u < weight[1] || u >= weight[1] + weight[0];
            double tau = AT(TAU, at), b = tau * (a.c * AT(X_OF, at) + a.s * AT(Y_OF, at)), value_j = 0.0;
            double b_too = tau * (a.c * AT(Y_OF, at) - a.s * AT(X_OF, at)), value_k = 0.0;
            double p_one = AT(SLAB_ONE, at) + tau * a.first, p_two = AT(SLAB_TWO, at) + tau * a.second, r = tau * a.both;
            if (two) {
                // given the pattern, the first integrated out if it is in use
                double precision = one ? p_two - r * r / p_one : p_two, mean = one ? b_too - r * b / p_one : b_too;
                value_k = mean / precision + normal_at(p.key, number, position + 1) / sqrt(precision);
            }
            if (one) value_j = (b - r * value_k) / p_one + normal_at(p.key, number, position) / sqrt(p_one);
            double old_j = *g * root;
            AT(MORE, at) = (value_j - (a.c * old_j + a.s * *h)) / root;
            AT(TOO, at) = value_k - (a.c * *h - a.s * old_j);
            users_j += (int)one - (int)(*g != 0.0);
            users_k += (int)two - (int)(*h != 0.0);
            *g = value_j / root;
            *h = value_k;
        }
        if (users_j) atomicAdd(p.usage + j, users_j);
        if (users_k) atomicAdd(p.usage + k, users_k);
        lower_excess(p, own, row_j, row_k);
    }
}
