// Births and deaths of features' own factors, and their split from the noise: a thread a feature.

__device__ inline double log_marginal(double square, double residual, double tau, double count) {
    double gain = tau * square;
    return -0.5 * count * log1p(gain) + 0.5 * tau * residual * gain / (1.0 + gain);
}

// For every factor that one feature alone uses, listed with that feature: the feature's number of such factors, their
// Σ g², and its residual sum of squares without them (3, n_own). A warp each; features with several are done as often.
KERNEL own_rows(int n_own, int k, int width, const index_t* owner, const index_t* usage, const double* loadings,
                const double* cross, const double* gram, const double* power, double* out) {
    index_t i = thread_number() / 32;
    int lane = threadIdx.x % 32;
    if (i >= n_own) return;
    index_t d = owner[i];
    const double* g = loadings + d * width;
    double own = 0.0, squares = 0.0, total = 0.0;
    for (int j = lane; j < k; j += 32) {
        if (usage[j] == 1) {
            own += g[j] != 0.0 ? 1.0 : 0.0;
            squares += g[j] * g[j];
        } else if (g[j] != 0.0) {
            double fit = 0.0;
            for (int t = 0; t < k; ++t)
                if (usage[t] != 1) fit += gram[j * k + t] * g[t];
            total -= g[j] * (2.0 * cross[d * k + j] - fit);
        }
    }
    own = warp_sum(own);
    squares = warp_sum(squares);
    total = warp_sum(total);
    if (lane == 0) {
        out[i] = own;
        out[n_own + i] = squares;
        out[2 * n_own + i] = fmax(power[d] + total, 0.0);
    }
}

// What a kernel has to say of some features: how many there are, as an int in the first place, then threes of numbers in
// any order, the first of which is the feature's.
__device__ inline void report_row(double* report, index_t d, double one, double two) {
    double* slot = report + 1 + 3 * (index_t)atomicAdd((int*)report, 1);
    slot[0] = (double)d;
    slot[1] = one;
    slot[2] = two;
}

// Propose a new set of own factors for every feature. Features that accept theirs are reported with the number of their
// new factors and their noise precisions. Owners of factors now are listed as by `own_rows`, with what that found;
// `residual` is of all factors. Where slabs are relative, loadings and residuals count in units of the noise.
KERNEL birth_rows(index_t n_features, const double* residual, const double* noise, int relative, const double* count,
                  int n_own, const index_t* owner, const double* own, int n_cumulative, const double* cumulative,
                  const double* weight, double slab_shape, double slab_rate, word_t key, double* report) {
    index_t d = thread_number();
    if (d >= n_features) return;
    Words pair = word_pair(key, d, 0, 0, 0);
    double u = to_unit(pair.first), v = to_unit(pair.second), r = residual[d], own_square = 0.0;
    int wanted = 0, have = 0;
    while (wanted < n_cumulative - 1 && u > cumulative[wanted]) ++wanted;
    for (int i = 0; i < n_own; ++i)
        if (owner[i] == d) {
            have = (int)own[i];
            own_square = own[n_own + i];
            r = own[2 * n_own + i];
        }
    if (wanted == 0 && have == 0) return;
    double square = 0.0, tau = noise[d];
    if (relative) {
        own_square *= tau;
        r *= tau;
        tau = 1.0;
    }
    for (int j = 0; j < wanted; ++j) {
        double precision = slab_rate;
        if (slab_shape > 0.0) precision = gamma_draw(slab_shape, key, d, (word_t)(j + 1) * STRETCH + 1) / slab_rate;
        double g = normal_at(key, d, (word_t)(j + 1) * STRETCH) / sqrt(precision);
        square += g * g;
    }
    double ratio = log_marginal(square, r, tau, count[d]) - log_marginal(own_square, r, tau, count[d]);
    if (log(v) < ratio + weight[wanted] - weight[have]) report_row(report, d, wanted, noise[d]);
}

__device__ double log_split_ratio(double g, double variance, double number, double others, double square,
                                  double slab_shape, double slab_rate, double noise_shape, double noise_rate,
                                  double rate, int relative) {
    double whole = variance + g * g, unit = relative ? variance : 1.0, size = g * g / unit, density;
    const double log_2pi = 1.8378770664093453;
    if (slab_shape == 0.0) {
        density = 0.5 * (log(slab_rate / unit) - log_2pi - slab_rate * size);
    } else {
        density = lgamma(slab_shape + 0.5) - lgamma(slab_shape) + slab_shape * log(slab_rate);
        density -= 0.5 * (log_2pi + log(unit)) + (slab_shape + 0.5) * log(slab_rate + 0.5 * size);
    }
    double shape = noise_shape + 0.5 * others, scale = noise_rate + 0.5 * square;
    double noise = (shape + 1.0) * log(whole / variance) - scale * (1.0 / variance - 1.0 / whole);
    return log(rate / (number + 1.0)) + density + noise + log(whole / fabs(g));
}

// Every feature tries to split its noise or to put an own factor back, a warp each; own (3, n_own) lists features with
// own factors, how many they have and one of these. Writes all noise precisions; reports births with their loadings and
// deaths with NaN, and the new noise precisions.
KERNEL split_rows(index_t n_features, int k, int width, const double* loadings, const double* slab, int n_own,
                  const index_t* own, double slab_shape, double slab_rate, double noise_shape, double noise_rate,
                  double rate, double largest, int relative, word_t key, const double* before, double* noise,
                  double* report) {
    index_t d = thread_number() / 32;
    if (d >= n_features) return;
    Weight weight = weight_of(loadings + d * width, relative ? slab : NULL, k);
    if (threadIdx.x % 32) return;
    noise[d] = before[d];
    Words one = word_pair(key, d, 0, 0, 0), two = word_pair(key, d, 1, 0, 0);
    double coin = to_unit(one.first), u = to_unit(one.second), side = to_unit(two.first), v = to_unit(two.second);
    double variance = 1.0 / before[d], others = weight.number, square = weight.square, number = 0.0;
    index_t chosen = 0;
    for (int i = 0; i < n_own; ++i)
        if (own[i] == d) {
            number = (double)own[n_own + i];
            chosen = own[2 * n_own + i];
        }
    if (coin < 0.5) {
        double g = sqrt(u * variance) * (side < 0.5 ? 1.0 : -1.0), rest = variance * (1.0 - u);
        if (rest * largest < 1.0) return;
        if (log(v) < log_split_ratio(g, rest, number, others, square, slab_shape, slab_rate, noise_shape, noise_rate,
                                     rate, relative)) {
            noise[d] = 1.0 / rest;
            report_row(report, d, g, noise[d]);
        }
    } else if (number > 0.0) {
        double g = loadings[d * width + chosen];
        if (relative) {
            others -= 1.0;
            square -= slab[chosen] * g * g;
        }
        if (log(v) < -log_split_ratio(g, variance, number - 1.0, others, square, slab_shape, slab_rate, noise_shape,
                                      noise_rate, rate, relative)) {
            noise[d] = 1.0 / (variance + g * g);
            report_row(report, d, NAN, noise[d]);
        }
    }
}
