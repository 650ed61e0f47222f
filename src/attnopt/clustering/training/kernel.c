/* The gradients of `backward.py`, and the steps and the evaluation of `step.py`, one model after another: all that a step
   touches stays in the processor's first cache. Sizes are given at compilation: V tokens of the vocabulary, T positions,
   D, H and NORM (0 "unit", 1 "rms", 2 "smooth"). Names are those of `backward.py`; arrays are features first. */

#include <math.h>
#include <stdint.h>
#include <string.h>

#define LANES 8
#define N (V * T)                                /* pairs of token and position */
#define W ((N + LANES - 1) / LANES * LANES)      /* the same, filled up */
#define C ((D + 1 + 3) / 4 * 4)                  /* what a pair adds to ξ's numerator and denominator, filled up */
#define B 32                                     /* sequences at a time */
#define EACH(at, count) for (int at = 0; at < (count); at++)

typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float half __attribute__((vector_size(16)));
typedef int32_t bits __attribute__((vector_size(4 * LANES)));
enum { TOKEN, POSITION, QUERY, VALUE, RECEPTORS, ASSEMBLERS, RECEPTOR_BIASES, ASSEMBLER_BIAS, PARAMETERS };
static const float SPREAD = 80.0f, TINY = 1.17549435e-38f;

static inline vec load(const float *from) {
    vec found;
    memcpy(&found, from, sizeof found);
    return found;
}

static inline void store(float *to, vec value) { memcpy(to, &value, sizeof value); }

static inline vec choose(bits which, vec one, vec other) { return (vec)((which & (bits)one) | (~which & (bits)other)); }

static inline half four(const float *from) {
    half found;
    memcpy(&found, from, sizeof found);
    return found;
}

static inline float total(vec value) {
    half sums = four((float *)&value) + four((float *)&value + 4);
    return (sums[0] + sums[2]) + (sums[1] + sums[3]);
}

/* eˣ to rounding for x up to 88; what lies below -87 counts as -87. */
static inline vec powers(vec x) {
    const vec zero = {0}, least = zero - 87.0f;
    vec inside = choose(x < least, least, x); /* not a number stays so */
    vec shifted = inside * 1.44269504f + 12582912.0f; /* an integer in the last bits */
    vec whole = shifted - 12582912.0f;
    vec scale = (vec)(((bits)shifted << 23) + 0x3F800000);
    vec rest = inside - whole * 0.693359375f;
    rest = rest + whole * 2.12194440e-4f;
    vec sum = rest * 1.9875691500e-4f + 1.3981999507e-3f;
    sum = sum * rest + 8.3334519073e-3f;
    sum = sum * rest + 4.1665795894e-2f;
    sum = sum * rest + 1.6666665459e-1f;
    sum = sum * rest + 5.0000001201e-1f;
    return (sum * rest * rest + rest + 1.0f) * scale;
}

/* The normal distribution Φ(x) to rounding, from e = e^(-x²/2): beyond |x| it is e times a polynomial in 1/(1 + 0.21 |x|),
   fitted from 0 to 13.5 with a relative error of 1.5e-8. */
static inline vec distribution(vec x, vec e) {
    vec size = (vec)((bits)x & 0x7FFFFFFF), near = 1.0f / (1.0f + 0.21f * size);
    vec tail = near * -0.0721857069f + 0.286168205f;
    tail = tail * near - 0.335625141f;
    tail = tail * near + 0.355636429f;
    tail = tail * near - 0.0983326146f;
    tail = tail * near + 0.126813091f;
    tail = tail * near + 0.068673054f;
    tail = tail * near + 0.0851459702f;
    tail = tail * near + 0.0837067079f;
    tail = tail * near * e;
    return choose(x < 0.0f, tail, 1.0f - tail);
}

static inline void exponentiate(float *values, int count) {
    for (int at = 0; at < count; at += LANES) store(values + at, powers(load(values + at)));
}

/* The factors φ(r) of vectors of length r and φ′(r)/r; `vectors` holds D rows of `count`. */
static inline void normalizer(const float *vectors, int count, float *factor, float *bend) {
    const float root = sqrtf((float)D);
    float lengths[W > B ? W : B], squares[W > B ? W : B];
    EACH(at, count) squares[at] = 0;
    EACH(c, D) EACH(at, count) squares[at] += vectors[c * count + at] * vectors[c * count + at];
    EACH(at, count) lengths[at] = sqrtf(squares[at] < TINY ? TINY : squares[at]);
#if NORM == 0
    EACH(at, count) {
        factor[at] = squares[at] > 0 ? 1 / lengths[at] : 0;
        bend[at] = -factor[at] * factor[at] * factor[at];
    }
#elif NORM == 1
    EACH(at, count) {
        factor[at] = 1 / (lengths[at] / root + 1e-5f);
        bend[at] = -factor[at] * factor[at] / (root * lengths[at]);
    }
#else
    const float near = 0.01f;
    float inner[W > B ? W : B], step[W > B ? W : B];
    EACH(at, count) {
        lengths[at] = lengths[at] < near ? near : lengths[at];
        inner[at] = lengths[at] > 1 - near ? 1 - near : lengths[at];
        step[at] = -(2 * inner[at] - 1) / (inner[at] * (1 - inner[at]));
        step[at] = step[at] > 80 ? 80 : step[at];
    }
    exponentiate(step, count);
    EACH(at, count) {
        float r = lengths[at], s = 1 / (1 + step[at]), q = 1 - inner[at];
        float slope = s * (1 - s) * (1 / (inner[at] * inner[at]) + 1 / (q * q));
        factor[at] = root * (1 - s + s / r);
        bend[at] = root * (slope * (1 / r - 1) - s / (r * r)) / r;
    }
#endif
}

/* grad becomes φ·grad + (φ′/r)(x·grad) x. */
static inline void pull_back(float *grad, const float *vectors, int count, const float *factor, const float *bend) {
    float along[W > B ? W : B];
    EACH(at, count) along[at] = 0;
    EACH(c, D) EACH(at, count) along[at] += grad[c * count + at] * vectors[c * count + at];
    EACH(at, count) along[at] *= bend[at];
    EACH(c, D) EACH(at, count) grad[c * count + at] = grad[c * count + at] * factor[at] + vectors[c * count + at] * along[at];
}

/* All that attention needs to know of the pairs. */
typedef struct {
    float sums[D * W], factor[W], bend[W], table[D * W], weights[W], values[D * W], rows[N * C];
} Pairs;

/* Returns how far the scores spread, if too far, else 0. */
static float pair_table(const float *row, const int32_t *at, Pairs *pairs) {
    const float *token = row + at[TOKEN], *position = row + at[POSITION], *query = row + at[QUERY], *value = row + at[VALUE];
    EACH(c, D) {
        EACH(v, V) EACH(t, T) pairs->sums[c * W + v * T + t] = token[v * D + c] + position[t * D + c];
        for (int n = N; n < W; n++) pairs->sums[c * W + n] = 0;
    }
    normalizer(pairs->sums, W, pairs->factor, pairs->bend);
    EACH(c, D) EACH(n, W) pairs->table[c * W + n] = pairs->sums[c * W + n] * pairs->factor[n];
    float *scores = pairs->weights;
    EACH(n, W) scores[n] = 0;
    EACH(c, D) EACH(n, W) scores[n] += query[c] * pairs->table[c * W + n];
    const float root = sqrtf((float)D);
    float most = scores[0] / root, least = most;
    EACH(n, W) scores[n] /= root;
    EACH(n, N) {
        most = scores[n] > most ? scores[n] : most;
        least = scores[n] < least ? scores[n] : least;
    }
    if (most - least > SPREAD) return most - least;
    EACH(n, W) scores[n] -= most;
    exponentiate(scores, W);
    EACH(r, D) {
        EACH(n, W) pairs->values[r * W + n] = 0;
        EACH(c, D) EACH(n, W) pairs->values[r * W + n] += value[r * D + c] * pairs->table[c * W + n];
    }
    EACH(n, N) {
        EACH(c, D) pairs->rows[n * C + c] = pairs->values[c * W + n] * pairs->weights[n];
        pairs->rows[n * C + D] = pairs->weights[n];
        for (int c = D + 1; c < C; c++) pairs->rows[n * C + c] = 0;
    }
    return 0;
}

/* What is known of sequences on the way forward. */
typedef struct {
    float sequence[D * B], inverse[B], factor[B], bend[B], direction[D * B], output[D * B], logits[V * B];
    float after[H * B], slope[H * B];
} Batch;

/* Up to the logits; `seen[b]` are the pairs of a sequence. */
static inline void forward(
    const float *row, const int32_t *at, const Pairs *pairs, const uint16_t *const *seen, Batch *batch, int learning
) {
    const float *token = row + at[TOKEN], *receptors = row + at[RECEPTORS], *assemblers = row + at[ASSEMBLERS];
    const float *receptor_biases = row + at[RECEPTOR_BIASES], *assembler_bias = row + at[ASSEMBLER_BIAS];
    float totals[D + 1][B];
    EACH(b, B) {
        half sums[C / 4] = {0};
        EACH(t, T) EACH(c, C / 4) sums[c] += four(pairs->rows + seen[b][t] * C + 4 * c);
        EACH(c, D + 1) totals[c][b] = sums[c / 4][c % 4];
    }
    EACH(b, B) batch->inverse[b] = 1 / totals[D][b];
    EACH(c, D) EACH(b, B) batch->sequence[c * B + b] = totals[c][b] * batch->inverse[b];
    normalizer(batch->sequence, B, batch->factor, batch->bend);
    EACH(c, D) EACH(b, B) batch->direction[c * B + b] = batch->sequence[c * B + b] * batch->factor[b];
    for (int b = 0; b < B; b += LANES) {
        vec direction[D], output[D];
        EACH(c, D) {
            direction[c] = load(batch->direction + c * B + b);
            output[c] = load(batch->sequence + c * B + b) + assembler_bias[c];
        }
        EACH(j, H) {
            vec x = direction[0] * receptors[j * D] + receptor_biases[j];
            for (int c = 1; c < D; c++) x += direction[c] * receptors[j * D + c];
            vec e = powers(x * x * -0.5f), share = distribution(x, e), after = x * share;
            EACH(c, D) output[c] += after * assemblers[c * H + j];
            if (learning) {
                store(batch->after + j * B + b, after);
                store(batch->slope + j * B + b, share + x * e * 0.398942280f);
            }
        }
        EACH(c, D) store(batch->output + c * B + b, output[c]);
    }
    EACH(v, V) {
        EACH(b, B) batch->logits[v * B + b] = 0;
        EACH(c, D) EACH(b, B) batch->logits[v * B + b] += token[v * D + c] * batch->output[c * B + b];
    }
}

/* The gradient of the mean loss on the sequences that `order` names; returns as `pair_table` does. */
static float gradient_of(
    const float *row, const int32_t *at, const uint16_t *pairs_of, const int32_t *labels, const int32_t *order, int count,
    float *gradient
) {
    const float *token = row + at[TOKEN], *query = row + at[QUERY], *value = row + at[VALUE];
    const float *receptors = row + at[RECEPTORS], *assemblers = row + at[ASSEMBLERS];
    float *d_token = gradient + at[TOKEN], *d_receptors = gradient + at[RECEPTORS];
    float *d_assemblers = gradient + at[ASSEMBLERS];
    Pairs pairs;
    Batch batch;
    float d_rows[N * C] = {0};
    float spread = pair_table(row, at, &pairs);
    if (spread > 0) return spread;
    for (int begin = 0; begin < count; begin += B) {
        const uint16_t *seen[B];
        float pull[D * B], surprise[V * B], lifted[D * B], most[B], mass[B], valid[B];
        int32_t truth[B];
        EACH(b, B) {
            int32_t which = order[begin + b < count ? begin + b : begin];
            seen[b] = pairs_of + (int64_t)which * T;
            truth[b] = labels[which];
            valid[b] = begin + b < count ? 1.0f / count : 0.0f;
        }
        forward(row, at, &pairs, seen, &batch, 1);
        EACH(b, B) most[b] = batch.logits[b];
        for (int v = 1; v < V; v++) EACH(b, B) most[b] = batch.logits[v * B + b] > most[b] ? batch.logits[v * B + b] : most[b];
        EACH(v, V) EACH(b, B) surprise[v * B + b] = batch.logits[v * B + b] - most[b];
        exponentiate(surprise, V * B);
        EACH(b, B) mass[b] = 0;
        EACH(v, V) EACH(b, B) mass[b] += surprise[v * B + b];
        EACH(v, V) EACH(b, B) surprise[v * B + b] = (surprise[v * B + b] / mass[b] - (truth[b] == v ? 1.0f : 0.0f)) * valid[b];
        EACH(c, D) {
            EACH(b, B) pull[c * B + b] = 0;
            EACH(v, V) EACH(b, B) pull[c * B + b] += token[v * D + c] * surprise[v * B + b];
            vec sum = {0};
            for (int b = 0; b < B; b += LANES) sum += load(pull + c * B + b);
            gradient[at[ASSEMBLER_BIAS] + c] += total(sum);
        }
        EACH(v, V) EACH(c, D) {
            vec sum = {0};
            for (int b = 0; b < B; b += LANES) sum += load(surprise + v * B + b) * load(batch.output + c * B + b);
            d_token[v * D + c] += total(sum);
        }
        EACH(b, D * B) lifted[b] = 0;
        EACH(j, H) {
            vec bias = {0}, receptor[D] = {0}, assembler[D] = {0};
            for (int b = 0; b < B; b += LANES) {
                vec after = load(batch.after + j * B + b), hidden = {0};
                EACH(c, D) {
                    vec pulled = load(pull + c * B + b);
                    hidden += pulled * assemblers[c * H + j];
                    assembler[c] += pulled * after;
                }
                hidden *= load(batch.slope + j * B + b);
                bias += hidden;
                EACH(c, D) {
                    receptor[c] += hidden * load(batch.direction + c * B + b);
                    store(lifted + c * B + b, load(lifted + c * B + b) + hidden * receptors[j * D + c]);
                }
            }
            gradient[at[RECEPTOR_BIASES] + j] += total(bias);
            EACH(c, D) d_receptors[j * D + c] += total(receptor[c]);
            EACH(c, D) d_assemblers[c * H + j] += total(assembler[c]);
        }
        pull_back(lifted, batch.sequence, B, batch.factor, batch.bend);
        float back[B][C];
        EACH(b, B) {
            float along = 0;
            EACH(c, D) {
                back[b][c] = batch.inverse[b] * (pull[c * B + b] + lifted[c * B + b]);
                along += back[b][c] * batch.sequence[c * B + b];
            }
            back[b][D] = -along;
            for (int c = D + 1; c < C; c++) back[b][c] = 0;
        }
        EACH(b, B) EACH(t, T) EACH(c, C / 4) {
            float *into = d_rows + seen[b][t] * C + 4 * c;
            half sum = four(into) + four(back[b] + 4 * c);
            memcpy(into, &sum, sizeof sum);
        }
    }
    const float root = sqrtf((float)D);
    float d_values[D * W] = {0}, felt[W] = {0}, d_sums[D * W];
    EACH(n, N) {
        float along = d_rows[n * C + D];
        EACH(c, D) {
            d_values[c * W + n] = d_rows[n * C + c] * pairs.weights[n];
            along += d_rows[n * C + c] * pairs.values[c * W + n];
        }
        felt[n] = pairs.weights[n] * along / root;
    }
    EACH(c, D) {
        vec sum = {0};
        for (int n = 0; n < W; n += LANES) sum += load(pairs.table + c * W + n) * load(felt + n);
        gradient[at[QUERY] + c] = total(sum);
        EACH(n, W) d_sums[c * W + n] = query[c] * felt[n];
        EACH(r, D) {
            EACH(n, W) d_sums[c * W + n] += value[r * D + c] * d_values[r * W + n];
            vec moved = {0};
            for (int n = 0; n < W; n += LANES) moved += load(d_values + r * W + n) * load(pairs.table + c * W + n);
            gradient[at[VALUE] + r * D + c] = total(moved);
        }
    }
    pull_back(d_sums, pairs.sums, W, pairs.factor, pairs.bend);
    EACH(c, D) EACH(v, V) EACH(t, T) {
        gradient[at[POSITION] + t * D + c] += d_sums[c * W + v * T + t];
        d_token[v * D + c] += d_sums[c * W + v * T + t];
    }
    return 0;
}

/* An epoch of Adam for the models from `from` to before `until`; the same in `predict`. `spread` gets how far a model's scores
   spread, if too far, else 0; such a model goes no further. `apart` is the distance from one model's order to the next one's,
   0 where all have the same. `bounds` are the ends of the parameters in a row, in its order, for their gradients' squared
   norms; `shrink` and `clip` may be null. */
void epoch(
    int64_t from, int64_t until, int64_t count, int64_t width, const int32_t *at, const int32_t *bounds, const uint16_t *pairs,
    const int32_t *labels, const int32_t *order, int64_t apart, int64_t size, int64_t *steps, double slow, double slower,
    double eps, const float *rates, const float *shrink, const float *clip, float *rows, float *first, float *second, float *squares,
    float *spread
) {
    for (int64_t m = from; m < until; m++) {
        float *restrict row = rows + m * width, *restrict one = first + m * width, *restrict two = second + m * width;
        const float *restrict rate = rates + m * width;
        float gradient[width];
        double left_of_slow = pow(slow, steps[m]), left_of_slower = pow(slower, steps[m]);
        for (int64_t begin = 0; begin < count; begin += size) {
            int some = count - begin < size ? count - begin : size;
            memset(gradient, 0, sizeof gradient);
            spread[m] = gradient_of(row, at, pairs + m * count * T, labels + m * count, order + m * apart + begin, some, gradient);
            if (spread[m] > 0) break;
            float length = 0;
            for (int k = 0, n = 0; k < PARAMETERS; k++) {
                vec sums = {0};
                for (; n + LANES <= bounds[k]; n += LANES) sums += load(gradient + n) * load(gradient + n);
                float sum = total(sums);
                for (; n < bounds[k]; n++) sum += gradient[n] * gradient[n];
                squares[m * PARAMETERS + k] += sum;
                length += sum;
            }
            if (clip) {
                float scale = clip[m] / sqrtf(length);
                if (!(scale > 1)) EACH(n, width) gradient[n] *= scale;
            }
            steps[m] += 1;
            left_of_slow *= slow;
            left_of_slower *= slower;
            const float bias = 1 / (1 - left_of_slow), bias_of_squares = 1 - left_of_slower, least = eps;
            const float new = 1 - slow, left = slower, add = 1 - slower;
            if (shrink) EACH(n, width) row[n] *= shrink[m * width + n];
            EACH(n, width) {
                one[n] += new * (gradient[n] - one[n]);
                two[n] = left * two[n] + add * (gradient[n] * gradient[n]);
                row[n] -= one[n] * rate[n] * bias / (sqrtf(two[n] / bias_of_squares) + least);
            }
        }
    }
}

/* Losses, whether the label's logit exceeds all others, (M, n), and ξ (M, D, n), of sequences that all models share where the
   strides from model to model are 0. */
void predict(
    int64_t from, int64_t until, int64_t count, int64_t width, const int32_t *at, const uint16_t *pairs, int64_t stride,
    const int32_t *labels, int64_t label_stride, const float *rows, float *losses, float *right, float *sequence,
    float *spread
) {
    for (int64_t m = from; m < until; m++) {
        Pairs known;
        Batch batch;
        spread[m] = pair_table(rows + m * width, at, &known);
        if (spread[m] > 0) continue;
        for (int64_t begin = 0; begin < count; begin += B) {
            const uint16_t *seen[B];
            int some = count - begin < B ? count - begin : B;
            float own[B], most[B], mass[B], ahead[B], shifted[V * B];
            EACH(b, B) seen[b] = pairs + m * stride + (begin + (b < some ? b : 0)) * T;
            forward(rows + m * width, at, &known, seen, &batch, 0);
            EACH(b, B) own[b] = batch.logits[labels[m * label_stride + begin + (b < some ? b : 0)] * B + b];
            EACH(b, B) most[b] = batch.logits[b], ahead[b] = 0, mass[b] = 0;
            EACH(v, V) EACH(b, B) {
                float logit = batch.logits[v * B + b];
                most[b] = logit > most[b] ? logit : most[b];
                ahead[b] += logit < own[b] ? 1.0f : 0.0f;
            }
            EACH(v, V) EACH(b, B) shifted[v * B + b] = batch.logits[v * B + b] - most[b];
            exponentiate(shifted, V * B);
            EACH(v, V) EACH(b, B) mass[b] += shifted[v * B + b];
            EACH(b, some) {
                losses[m * count + begin + b] = logf(mass[b]) - (own[b] - most[b]);
                right[m * count + begin + b] = ahead[b] == V - 1 ? 1.0f : 0.0f;
                EACH(c, D) sequence[(m * D + c) * count + begin + b] = batch.sequence[c * B + b];
            }
        }
    }
}
