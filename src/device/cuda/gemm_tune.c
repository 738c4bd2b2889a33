/* Times algorithms of products between two events, and tunes a product on the caller's memory. */
#include "base/clock.h"
#include "base/statistics.h"
#include "device/cuda/cuda.h"
#include "device/cuda/gemm_internal.h"

enum { ROUNDS = 5 };
/*
 * Milliseconds of warm-up before timing, skipped if another product was timed less than hot_ms ago;
 * and of one timing.
 */
static const double warm_ms = 300, hot_ms = 100, timing_ms = 4;

int erg_gemm_trial_begin(struct erg_gemm_trial *trial, struct erg_error *err)
{
    return erg_cuda_event_new(&trial->start, true, err) ||
                   erg_cuda_event_new(&trial->end, true, err)
               ? -1
               : 0;
}

void erg_gemm_trial_end(struct erg_gemm_trial *trial)
{
    erg_cuda_event_free(trial->start);
    erg_cuda_event_free(trial->end);
}

static int run_times(const struct erg_gemm_trial *trial, const cublasLtMatmulAlgo_t *algorithm,
                     int times, struct erg_error *err)
{
    for (int i = 0; i < times; i++)
        if (erg_gemm_enqueue(trial->gemm, trial->product, algorithm, &trial->operands, trial->sms,
                             trial->workspace, trial->stream, err))
            return -1;
    return 0;
}

int erg_gemm_trial_time(const struct erg_gemm_trial *trial, const cublasLtMatmulAlgo_t *algorithm,
                        int lead, int repeats, double *ms, struct erg_error *err)
{
    if (run_times(trial, algorithm, lead, err) ||
        erg_cuda_event_record(trial->start, trial->stream, err) ||
        run_times(trial, algorithm, repeats, err) ||
        erg_cuda_event_record(trial->end, trial->stream, err) ||
        erg_cuda_event_sync(trial->end, err) ||
        erg_cuda_event_ms(ms, trial->start, trial->end, err))
        return -1;
    *ms /= repeats;
    trial->gemm->timed_ns = erg_now_ns();
    return 0;
}

int erg_gemm_trial_heat(const struct erg_gemm_trial *trial, double *once, struct erg_error *err)
{
    const cublasLtMatmulAlgo_t *first = &trial->product->answers[0].algo;
    const bool hot = (double)(erg_now_ns() - trial->gemm->timed_ns) < hot_ms * 1e6;
    if (erg_gemm_trial_time(trial, first, 1, 1, once, err))
        return -1;
    const int repeats = *once < timing_ms ? (int)(timing_ms / *once) + 1 : 1;
    for (double spent = 0; !hot && spent < warm_ms; spent += *once * repeats)
        if (erg_gemm_trial_time(trial, first, 0, repeats, once, err))
            return -1;
    return 0;
}

/* Each round times all answers, so that a slow drift of the clock affects all equally. */
static int time_answers(const struct erg_gemm_trial *trial, double *medians, struct erg_error *err)
{
    const struct erg_gemm_product *product = trial->product;
    double times[ERG_GEMM_ANSWERS][ROUNDS], once;
    if (erg_gemm_trial_heat(trial, &once, err))
        return -1;
    const int repeats = once < timing_ms ? (int)(timing_ms / once) + 1 : 1;
    for (size_t round = 0; round < ROUNDS; round++)
        for (size_t i = 0; i < product->count; i++)
            if (erg_gemm_trial_time(trial, &product->answers[i].algo, 0, repeats, &times[i][round],
                                    err))
                return -1;
    for (size_t i = 0; i < product->count; i++)
        medians[i] = erg_median(times[i], ROUNDS);
    return 0;
}

int erg_gemm_tune(struct erg_gemm *gemm, const struct erg_gemm_shape *shape, const void *a,
                  const void *b, const void *bias, void *c, int sms, void *workspace,
                  struct CUstream_st *stream, struct erg_gemm_timing *timing, struct erg_error *err)
{
    struct erg_gemm_trial trial = {.gemm = gemm,
                                   .operands = {a, b, bias, c, false},
                                   .workspace = workspace,
                                   .sms = sms,
                                   .stream = stream};
    double medians[ERG_GEMM_ANSWERS];
    if (erg_gemm_find(gemm, &trial.product, shape, &trial.operands, sms > 0, err))
        return -1;
    int status = erg_gemm_trial_begin(&trial, err);
    if (!status)
        status = time_answers(&trial, medians, err);
    erg_gemm_trial_end(&trial);
    if (status)
        return -1;
    size_t best = 0;
    for (size_t i = 1; i < trial.product->count; i++)
        if (medians[i] < medians[best])
            best = i;
    trial.product->best = best;
    *timing = (struct erg_gemm_timing){.answers = trial.product->count,
                                       .best = best,
                                       .first_ms = medians[0],
                                       .best_ms = medians[best]};
    return 0;
}
