/* Initial weights, by the names of their tensors. */
#include "train/engine/initialize.h"

#include "base/random.h"
#include "base/thread.h"

#include <math.h>
#include <string.h>

static float initial_value(uint64_t key, uint64_t index, double mean, double deviation)
{
    int64_t sum = -393210;
    for (uint64_t k = 0; k < 3; k++) {
        uint64_t quarters = erg_hash_at(key, 3 * index + k);
        for (int q = 0; q < 4; q++, quarters >>= 16)
            sum += (int64_t)(quarters & 0xffff);
    }
    return (float)(mean + deviation * ((double)sum / 65536.0));
}

static void moments_of(const struct erg_model *model, enum erg_tensor tensor, double *mean,
                       double *deviation)
{
    double all = model->initializer_range > 0 ? model->initializer_range : 0.02;
    *mean = *deviation = 0;
    switch (tensor) {
    case ERG_TENSOR_NORM_A:
    case ERG_TENSOR_NORM_M:
    case ERG_TENSOR_NORM_FINAL:
    case ERG_TENSOR_Q_NORM:
    case ERG_TENSOR_K_NORM:
        *mean = 1;
        break;
    case ERG_TENSOR_QKV:
    case ERG_TENSOR_FC1:
    case ERG_TENSOR_EMBEDDING:
    case ERG_TENSOR_POSITIONS:
    case ERG_TENSOR_HEAD:
        *deviation = all;
        break;
    case ERG_TENSOR_PROJ:
    case ERG_TENSOR_FC2:
        *deviation = all / sqrt(2 * (double)model->layers);
        break;
    default: /* biases */
        break;
    }
}

struct initial_work {
    float *state;
    const struct erg_weights *weights;
    const struct erg_weight_spans *spans;
    const struct erg_model *model;
    uint64_t seed;
};

static int fill_span(void *context, size_t index, struct erg_error *err)
{
    (void)err;
    const struct initial_work *work = context;
    const struct erg_weight_span *span = &work->spans->items[index];
    uint64_t key = erg_hash_u64(work->seed, erg_hash_text(span->name));
    double mean, deviation;
    moments_of(work->model, work->weights->items[span->weight].tensor, &mean, &deviation);
    for (size_t row = 0; row < span->rows; row++)
        for (size_t column = 0; column < span->columns; column++)
            work->state[erg_weight_span_here(span, row, column)] =
                initial_value(key, erg_weight_span_there(span, row, column), mean, deviation);
    return 0;
}

int erg_initialize(float *state, const struct erg_weights *weights,
                   const struct erg_weight_spans *spans, const struct erg_model *model,
                   uint64_t seed, struct erg_error *err)
{
    struct initial_work work = {state, weights, spans, model, seed};
    memset(state, 0, weights->state * sizeof *state);
    return erg_parallel_for(spans->count, 0, fill_span, &work, err);
}
