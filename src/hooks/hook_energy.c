/* The power of passes, from steps of the energy counter and the times of passes. */
#include "hooks/hook_energy.h"

#include "base/clock.h"
#include "base/memory.h"
#include "base/thread.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const int64_t poll_ns = 5000000, fine_ns = 1000000, longest_ns = 1000000000;

/*
 * The counter is read often only when a step of it is due: after this share of the shortest recent
 * time between two steps. That shortest time slowly grows by FORGETS.
 */
#define DUE 0.8
#define FORGETS 1.02

enum {
    SPANS = 4096, /* more than a step */
    EDGES = 1024,
    WAITING = ERG_DECONVOLUTION_CLASSES - 1,
    WHOLE_STEP = -1,
    RESTART = -2,
};

struct span {
    int class;
    int64_t begin_ns, end_ns;
};

struct step_edge {
    int64_t time_ns, half_ns; /* halfway between the reads around it, each half_ns away */
    double energy_j;
};

struct erg_hook_energy {
    struct erg_gpus *gpus;
    size_t gpu;
    pthread_t thread;
    atomic_bool closing;
    struct span ring[SPANS];
    _Atomic uint64_t added, taken;
    bool left_out; /* a pass of this step is missing; used by the adding thread only */

    /* The thread's own. */
    struct span spans[SPANS]; /* of the step that is not yet complete */
    size_t span_count;
    struct step_edge edges[EDGES]; /* a ring */
    size_t edge_count;
    int64_t read_ns, value_mj; /* the latest read; value -1: none */
    int64_t edge_ns;           /* 0: none was seen */
    double period_ns;          /* 0: unknown */
    struct erg_deconvolution sums;

    _Atomic double power_w[ERG_DECONVOLUTION_CLASSES], uncertainty_w[ERG_DECONVOLUTION_CLASSES];
    atomic_bool measured[ERG_DECONVOLUTION_CLASSES];
    _Atomic uint64_t block; /* the block of the estimates */
};

/* ---- the trainer's side ---- */

static bool add_span(struct erg_hook_energy *energy, int class, int64_t begin_ns, int64_t end_ns)
{
    const uint64_t added = energy->added;
    if (added - energy->taken == SPANS)
        return false;
    energy->ring[added % SPANS] = (struct span){class, begin_ns, end_ns};
    energy->added = added + 1;
    return true;
}

void erg_hook_energy_pass(struct erg_hook_energy *energy, size_t class, int64_t begin_ns,
                          int64_t end_ns)
{
    if (class >= WAITING || !add_span(energy, (int)class, begin_ns, end_ns))
        energy->left_out = true;
}

/* An incomplete step is reported with length 0. */
void erg_hook_energy_step(struct erg_hook_energy *energy, int64_t begin_ns, int64_t end_ns)
{
    if (add_span(energy, WHOLE_STEP, begin_ns, energy->left_out ? begin_ns : end_ns))
        energy->left_out = false;
    else
        energy->left_out = true; /* otherwise this step's passes would count for the next one */
}

void erg_hook_energy_restart(struct erg_hook_energy *energy, uint64_t block)
{
    (void)add_span(energy, RESTART, (int64_t)block,
                   0); /* if the ring is full, the block has no estimates */
}

uint64_t erg_hook_energy_block(const struct erg_hook_energy *energy)
{
    return energy->block;
}

/* ---- the counter ---- */

static bool is_due(const struct erg_hook_energy *energy, int64_t now_ns)
{
    return energy->period_ns == 0 ||
           (double)(now_ns - energy->edge_ns) >= DUE * energy->period_ns - (double)fine_ns;
}

static void note_period(struct erg_hook_energy *energy, int64_t edge_ns)
{
    const double since_ns = (double)(edge_ns - energy->edge_ns);
    if (energy->edge_ns && since_ns < (double)longest_ns)
        energy->period_ns =
            energy->period_ns > 0 ? fmin(FORGETS * energy->period_ns, since_ns) : since_ns;
    energy->edge_ns = edge_ns;
}

static void read_counter(struct erg_hook_energy *energy)
{
    struct erg_gpu_sample sample;
    erg_gpu_read(energy->gpus, energy->gpu, 1 << ERG_METRIC_ENERGY, &sample);
    if (!erg_gpu_has(&sample, ERG_METRIC_ENERGY))
        return;
    const int64_t value_mj = sample.readings[ERG_METRIC_ENERGY].value;
    const int64_t now_ns = sample.end_ns;
    if (value_mj < energy->value_mj) /* the counter restarted */
        energy->edge_count = 0;
    else if (energy->value_mj >= 0 && value_mj > energy->value_mj) {
        const int64_t half_ns = (now_ns - energy->read_ns) / 2;
        energy->edges[energy->edge_count++ % EDGES] =
            (struct step_edge){energy->read_ns + half_ns, half_ns, 1e-3 * (double)value_mj};
        note_period(energy, energy->read_ns + half_ns);
    }
    energy->value_mj = value_mj;
    energy->read_ns = now_ns;
}

/* ---- steps ---- */

static double overlap_s(const struct span *span, int64_t from_ns, int64_t to_ns)
{
    const int64_t begin_ns = span->begin_ns > from_ns ? span->begin_ns : from_ns;
    const int64_t end_ns = span->end_ns < to_ns ? span->end_ns : to_ns;
    return end_ns > begin_ns ? 1e-9 * (double)(end_ns - begin_ns) : 0;
}

static void add_increment(struct erg_hook_energy *energy, const struct step_edge *from,
                          const struct step_edge *to)
{
    double seconds[ERG_DECONVOLUTION_CLASSES] = {0};
    double rest_s = 1e-9 * (double)(to->time_ns - from->time_ns);
    for (size_t i = 0; i < energy->span_count; i++) {
        const double time_s = overlap_s(&energy->spans[i], from->time_ns, to->time_ns);
        seconds[energy->spans[i].class] += time_s;
        rest_s -= time_s;
    }
    seconds[WAITING] = fmax(rest_s, 0);
    /* On a busy machine some reads come late, and the energy between them is less accurate. */
    const double weight =
        fmin(1, (double)fine_ns / hypot((double)from->half_ns, (double)to->half_ns));
    for (size_t c = 0; c < ERG_DECONVOLUTION_CLASSES; c++)
        seconds[c] *= weight;
    erg_deconvolution_add(&energy->sums, seconds, weight * (to->energy_j - from->energy_j));
}

static void solve(struct erg_hook_energy *energy)
{
    struct erg_class_power powers[ERG_DECONVOLUTION_CLASSES];
    /* The uncertainty excludes the sensor's own error, as in ergon/telemetry.h. */
    erg_deconvolution_solve(&energy->sums, 0, powers);
    for (size_t c = 0; c < ERG_DECONVOLUTION_CLASSES; c++) {
        energy->power_w[c] = powers[c].power_w;
        energy->uncertainty_w[c] = powers[c].uncertainty_w;
        energy->measured[c] = powers[c].measured;
    }
}

/* Adds all increments within the step. */
static void take_step(struct erg_hook_energy *energy, const struct span *step)
{
    const size_t kept = energy->edge_count < EDGES ? energy->edge_count : EDGES;
    for (size_t i = energy->edge_count - kept; i + 1 < energy->edge_count; i++) {
        const struct step_edge *from = &energy->edges[i % EDGES];
        const struct step_edge *to = &energy->edges[(i + 1) % EDGES];
        if (from->time_ns >= step->begin_ns && to->time_ns <= step->end_ns &&
            to->time_ns - from->time_ns < longest_ns)
            add_increment(energy, from, to);
    }
    solve(energy);
}

static void take_spans(struct erg_hook_energy *energy)
{
    for (; energy->taken < energy->added; energy->taken++) {
        const struct span span = energy->ring[energy->taken % SPANS];
        if (span.class == WHOLE_STEP) {
            take_step(energy, &span);
            energy->span_count = 0;
        } else if (span.class == RESTART) {
            energy->sums = (struct erg_deconvolution){.classes = ERG_DECONVOLUTION_CLASSES};
            solve(energy);
            energy->block = (uint64_t)span.begin_ns;
        } else if (energy->span_count < SPANS) {
            energy->spans[energy->span_count++] = span;
        }
    }
}

static void *measure(void *context)
{
    struct erg_hook_energy *energy = context;
    while (!energy->closing) {
        const bool due = is_due(energy, erg_now_ns());
        if (due)
            read_counter(energy);
        take_spans(energy);
        erg_sleep_ns(due && energy->period_ns > 0 ? fine_ns : poll_ns);
    }
    return NULL;
}

/* ---- open and close ---- */

int erg_hook_energy_open(struct erg_hook_energy **out, struct erg_gpus *gpus, size_t gpu,
                         struct erg_error *err)
{
    struct erg_hook_energy *energy = erg_xcalloc(1, sizeof *energy);
    energy->gpus = erg_gpus_retain(gpus);
    energy->gpu = gpu;
    energy->value_mj = -1;
    energy->sums.classes = ERG_DECONVOLUTION_CLASSES;
    solve(energy);
    read_counter(energy);
    const bool counts = energy->value_mj >= 0;
    const char *why = erg_gpu_refusal(gpus, gpu, ERG_METRIC_ENERGY);
    const int code = counts ? erg_thread_start(&energy->thread, measure, energy) : 0;
    if (counts && code == 0) {
        *out = energy;
        return 0;
    }
    erg_gpus_close(energy->gpus);
    free(energy);
    if (counts)
        return erg_fail(err, ERG_FAILED, "measuring the energy of passes: no thread (%s)",
                        strerror(code));
    return erg_fail(err, ERG_NO_DEVICE, "measuring the energy of passes: no energy counter (%s)",
                    why ? why : "it cannot be read");
}

void erg_hook_energy_close(struct erg_hook_energy *energy)
{
    if (!energy)
        return;
    energy->closing = true;
    pthread_join(energy->thread, NULL);
    erg_gpus_close(energy->gpus);
    free(energy);
}

struct erg_class_power erg_hook_energy_of(const struct erg_hook_energy *energy, size_t class)
{
    if (class == ERG_HOOK_WAITING)
        class = WAITING;
    else if (class >= WAITING)
        return (struct erg_class_power){(double)NAN, (double)NAN, false};
    return (struct erg_class_power){energy->power_w[class], energy->uncertainty_w[class],
                                    energy->measured[class]};
}
