/* The live state of GPUs: takes samples, gives the state at any moment (observe/live.h). */
#include "observe/live.h"

#include "base/memory.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>

/* Over a shorter time, a rate shows mostly the step of the counter. */
static const int64_t rate_ns = 200000000;
static const int64_t fresh_least_ns = 2000000000;

static const int64_t believed_ns = 1000000000; /* accepts a restarted counter after this */
static const int64_t still_ns = 3000000000;    /* an energy counter stands still after this */

/* A counter that may briefly return wrong values. */
struct counter {
    bool seen;
    struct erg_reading newest; /* the newest plausible reading */
    int64_t moved_ns;          /* time of its last change */
    struct erg_reading odd,
        odd_end;               /* the first and the last of a series of implausible readings */
    double used;               /* since the start; NaN once it has restarted */
    struct erg_reading anchor; /* start of the interval for the rate */
    double rate;
    int64_t rate_at_ns;
};

struct power_step {
    int64_t index; /* number of the step in this slot of the ring, since the start */
    double sum_w;
    size_t count;
    int64_t reasons;
};

struct gpu_state {
    struct erg_gpu_info info;
    bool lost;
    bool answered;
    int64_t answered_ns;
    bool seen[ERG_METRICS];
    struct erg_reading newest[ERG_METRICS];
    int64_t read_ns[ERG_METRICS]; /* when the newest was read */
    struct counter counters[ERG_METRICS];
    double power_energy_j;
    double held_w; /* the last power reading, held until the next */
    int64_t held_ns;
    struct power_step steps[ERG_LIVE_HISTORY + 1]; /* plus the step that is not complete yet */
};

struct erg_live {
    pthread_mutex_t lock;
    int64_t start_ns, step_ns;
    int64_t fresh_ns[ERG_COSTS];
    size_t count;
    struct gpu_state *gpus;
};

struct erg_sampler_options erg_live_pace(long interval_ms)
{
    struct erg_sampler_options options = erg_sampler_options_default();
    int64_t interval_ns = (int64_t)interval_ms * 1000000;
    options.period_ns[ERG_COST_FAST] = interval_ns;
    for (int cost = ERG_COST_FAST + 1; cost < ERG_COSTS; cost++)
        if (options.period_ns[cost] < interval_ns)
            options.period_ns[cost] = interval_ns;
    return options;
}

struct erg_live *erg_live_new(const struct erg_gpus *gpus,
                              const struct erg_sampler_options *options, int64_t step_ns,
                              int64_t now_ns)
{
    struct erg_live *live = erg_xcalloc(1, sizeof *live);
    pthread_mutex_init(&live->lock, NULL);
    live->start_ns = now_ns;
    live->step_ns = step_ns;
    for (int cost = 0; cost < ERG_COSTS; cost++) {
        int64_t fresh_ns = 3 * options->period_ns[cost];
        live->fresh_ns[cost] = fresh_ns > fresh_least_ns ? fresh_ns : fresh_least_ns;
    }
    live->count = erg_gpus_count(gpus);
    live->gpus = erg_xcalloc(live->count, sizeof *live->gpus);
    for (size_t g = 0; g < live->count; g++) {
        struct gpu_state *gpu = &live->gpus[g];
        gpu->info = *erg_gpus_info(gpus, g);
        gpu->power_energy_j = gpu->held_w = NAN;
        for (size_t i = 0; i <= ERG_LIVE_HISTORY; i++)
            gpu->steps[i].index = -1;
    }
    return live;
}

void erg_live_free(struct erg_live *live)
{
    if (!live)
        return;
    pthread_mutex_destroy(&live->lock);
    free(live->gpus);
    free(live);
}

/* ---- putting ---- */

/*
 * The upper limit for any GPU, in the counter's unit per second, and the longest period of any
 * counter.
 */
static double most_per_s(enum erg_metric metric)
{
    switch (metric) {
    case ERG_METRIC_ENERGY:
        return 20e6;
    case ERG_METRIC_VIOLATION_POWER:
    case ERG_METRIC_VIOLATION_THERMAL:
        return 2e9;
    case ERG_METRIC_ECC_CORRECTED:
    case ERG_METRIC_ECC_UNCORRECTED:
        return 1e9;
    default:
        return 1e13; /* bytes */
    }
}

static bool follows(const struct erg_reading *reading, const struct erg_reading *before,
                    enum erg_metric metric)
{
    static const double most_period_s = 1;
    double time_s = 1e-9 * (double)(reading->time_ns - before->time_ns);
    return reading->value >= before->value && (double)(reading->value - before->value) <=
                                                  most_per_s(metric) * (time_s + most_period_s);
}

/*
 * Whether an implausible reading is accepted: some drivers return garbage for a moment. A counter
 * that really restarts, for example because the driver was reloaded, continues from there, and an
 * energy counter moves. The amount used until then is unknown.
 */
static bool starts_anew(struct counter *counter, const struct erg_reading *reading,
                        enum erg_metric metric)
{
    if (!counter->odd_end.time_ns || !follows(reading, &counter->odd_end, metric))
        counter->odd = *reading;
    counter->odd_end = *reading;
    return reading->time_ns - counter->odd.time_ns >= believed_ns &&
           (metric != ERG_METRIC_ENERGY || reading->value != counter->odd.value);
}

/* Takes a reading of a counter, or returns false. */
static bool take_counter(struct counter *counter, const struct erg_reading *reading,
                         enum erg_metric metric, int64_t now_ns)
{
    bool anew = counter->seen && !follows(reading, &counter->newest, metric);
    if (anew && !starts_anew(counter, reading, metric))
        return false;
    if (!counter->seen || anew)
        *counter = (struct counter){.seen = true,
                                    .newest = *reading,
                                    .moved_ns = reading->time_ns,
                                    .used = anew ? NAN : 0,
                                    .anchor = *reading,
                                    .rate = NAN};
    counter->odd_end.time_ns = 0;
    counter->used += (double)(reading->value - counter->newest.value);
    if (reading->value != counter->newest.value)
        counter->moved_ns = reading->time_ns;
    counter->newest = *reading;
    int64_t passed_ns = reading->time_ns - counter->anchor.time_ns;
    if (passed_ns >= rate_ns) {
        assert(passed_ns > 0);
        counter->rate =
            (double)(reading->value - counter->anchor.value) / (1e-9 * (double)passed_ns);
        counter->rate_at_ns = now_ns;
        counter->anchor = *reading;
    }
    return true;
}

static void note_power(struct erg_live *live, struct gpu_state *gpu,
                       const struct erg_gpu_sample *sample)
{
    enum erg_metric metric = erg_gpu_has(sample, ERG_METRIC_POWER_INSTANT)
                                 ? ERG_METRIC_POWER_INSTANT
                                 : ERG_METRIC_POWER_AVERAGE;
    int64_t now_ns = sample->end_ns, index = (now_ns - live->start_ns) / live->step_ns;
    if (now_ns < live->start_ns)
        return;
    struct power_step *step = &gpu->steps[index % (ERG_LIVE_HISTORY + 1)];
    assert(index >= 0 && step->index <= index);
    if (step->index != index)
        *step = (struct power_step){.index = index};
    if (erg_gpu_has(sample, ERG_METRIC_REASONS))
        step->reasons |= sample->readings[ERG_METRIC_REASONS].value;
    /* With instant power, the average power, which is read less often, is not mixed in. */
    bool second_choice = metric == ERG_METRIC_POWER_AVERAGE && gpu->seen[ERG_METRIC_POWER_INSTANT];
    if (!erg_gpu_has(sample, metric) || second_choice)
        return;
    double power_w = 1e-3 * (double)sample->readings[metric].value;
    if (isnan(gpu->held_w))
        gpu->power_energy_j = 0;
    else
        gpu->power_energy_j += gpu->held_w * 1e-9 * (double)(now_ns - gpu->held_ns);
    gpu->held_w = power_w;
    gpu->held_ns = now_ns;
    step->sum_w += power_w;
    step->count++;
}

void erg_live_put(void *context, const struct erg_sampler_item *item)
{
    struct erg_live *live = context;
    const struct erg_gpu_sample *sample = &item->sample;
    pthread_mutex_lock(&live->lock);
    struct gpu_state *gpu = &live->gpus[item->gpu];
    assert(item->gpu < live->count);
    gpu->lost |= sample->lost;
    if (sample->valid) {
        gpu->answered = true;
        gpu->answered_ns = sample->end_ns;
    }
    note_power(live, gpu, sample);
    for (enum erg_metric m = 0; m < ERG_METRICS; m++) {
        if (!erg_gpu_has(sample, m) ||
            (erg_metric_info(m)->counter &&
             !take_counter(&gpu->counters[m], &sample->readings[m], m, sample->end_ns)))
            continue;
        gpu->seen[m] = true;
        gpu->newest[m] = sample->readings[m];
        gpu->read_ns[m] = sample->end_ns;
    }
    pthread_mutex_unlock(&live->lock);
}

/* ---- looking ---- */

static void look_at_history(const struct erg_live *live, const struct gpu_state *gpu,
                            int64_t now_ns, struct erg_live_gpu *view)
{
    int64_t now_index = (now_ns - live->start_ns) / live->step_ns;
    view->reasons_recent = 0;
    for (int i = 0; i < ERG_LIVE_HISTORY; i++) {
        int64_t index = now_index - ERG_LIVE_HISTORY + i;
        const struct power_step *step =
            index < 0 ? NULL : &gpu->steps[index % (ERG_LIVE_HISTORY + 1)];
        bool known = step && step->index == index && step->count;
        view->history_w[i] = known ? (float)(step->sum_w / (double)step->count) : NAN;
    }
    for (int64_t index = now_index > 0 ? now_index - 1 : 0; index <= now_index; index++) {
        const struct power_step *step = &gpu->steps[index % (ERG_LIVE_HISTORY + 1)];
        if (step->index == index)
            view->reasons_recent |= step->reasons;
    }
}

static void look_at_gpu(const struct erg_live *live, const struct gpu_state *gpu, int64_t now_ns,
                        struct erg_live_gpu *view)
{
    view->info = gpu->info;
    view->lost = gpu->lost;
    view->answers =
        !gpu->lost && gpu->answered && now_ns - gpu->answered_ns <= live->fresh_ns[ERG_COST_FAST];
    view->valid = 0;
    const struct counter *energy = &gpu->counters[ERG_METRIC_ENERGY];
    bool still = gpu->held_w > 0 && now_ns - energy->moved_ns > still_ns;
    view->energy_j = energy->seen && !still ? 1e-3 * energy->used : NAN;
    view->power_energy_j = gpu->power_energy_j;
    for (enum erg_metric m = 0; m < ERG_METRICS; m++) {
        int64_t fresh_ns = live->fresh_ns[erg_metric_info(m)->cost];
        const struct counter *counter = &gpu->counters[m];
        bool fresh = view->answers && gpu->seen[m] && now_ns - gpu->read_ns[m] <= fresh_ns &&
                     !(m == ERG_METRIC_ENERGY && still);
        bool rate = fresh && counter->seen && now_ns - counter->rate_at_ns <= fresh_ns;
        view->valid |= (uint64_t)fresh << m;
        view->values[m] = fresh ? gpu->newest[m].value : 0;
        view->rates[m] = rate ? counter->rate : NAN;
    }
    look_at_history(live, gpu, now_ns, view);
}

void erg_live_look(struct erg_live *live, int64_t now_ns, struct erg_live_view *view)
{
    if (!view->gpus)
        view->gpus = erg_xcalloc(live->count, sizeof *view->gpus);
    pthread_mutex_lock(&live->lock);
    view->count = live->count;
    view->seconds = 1e-9 * (double)(now_ns - live->start_ns);
    for (size_t g = 0; g < live->count; g++)
        look_at_gpu(live, &live->gpus[g], now_ns, &view->gpus[g]);
    pthread_mutex_unlock(&live->lock);
}

void erg_live_view_release(struct erg_live_view *view)
{
    free(view->gpus);
    *view = (struct erg_live_view){0};
}

double erg_live_value(const struct erg_live_gpu *gpu, enum erg_metric metric, double scale)
{
    return erg_live_has(gpu, metric) ? scale * (double)gpu->values[metric] : NAN;
}

double erg_live_power_w(const struct erg_live_gpu *gpu)
{
    double power_w = erg_live_value(gpu, ERG_METRIC_POWER_INSTANT, 1e-3);
    return isnan(power_w) ? erg_live_value(gpu, ERG_METRIC_POWER_AVERAGE, 1e-3) : power_w;
}

const char *erg_live_trouble(const struct erg_live_gpu *gpu)
{
    if (gpu->info.trouble[0])
        return gpu->info.trouble;
    return gpu->lost ? "fell off the bus" : gpu->answers ? "" : "does not answer";
}
