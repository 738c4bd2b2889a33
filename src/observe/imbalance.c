/* The imbalance of GPUs: at a moment, and over a recording. */
#include "observe/imbalance.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>

const char *const erg_imbalance_names[ERG_IMBALANCES] = {"power", "clock", "temperature"};

/* Over the GPUs with a known value. */
struct evenness {
    double sum, most;
    size_t count;
};

static void take(struct evenness *of, double value)
{
    if (isnan(value))
        return;
    of->most = of->count ? fmax(of->most, value) : value;
    of->sum += value;
    of->count++;
}

static double ratio(const struct evenness *of)
{
    return of->count > 1 && of->sum > 0 ? of->most * (double)of->count / of->sum : NAN;
}

void erg_imbalance_now(const struct erg_live_view *view, double ratios[ERG_IMBALANCES])
{
    struct evenness all[ERG_IMBALANCES] = {0};
    for (size_t g = 0; g < view->count; g++) {
        const struct erg_live_gpu *gpu = &view->gpus[g];
        take(&all[ERG_IMBALANCE_POWER], erg_live_power_w(gpu));
        take(&all[ERG_IMBALANCE_CLOCK], erg_live_value(gpu, ERG_METRIC_SM_CLOCK, 1));
        take(&all[ERG_IMBALANCE_TEMPERATURE], erg_live_value(gpu, ERG_METRIC_TEMPERATURE, 1));
    }
    for (int i = 0; i < ERG_IMBALANCES; i++)
        ratios[i] = ratio(&all[i]);
}

/* ---- over time ---- */

struct gpu_means {
    double sums[ERG_IMBALANCES];
    size_t counts[ERG_IMBALANCES];
};

struct erg_imbalance_means {
    size_t count;
    struct gpu_means gpus[];
};

struct erg_imbalance_means *erg_imbalance_new(size_t gpus)
{
    struct erg_imbalance_means *means =
        erg_xcalloc(1, sizeof *means + gpus * sizeof(struct gpu_means));
    means->count = gpus;
    return means;
}

void erg_imbalance_put(struct erg_imbalance_means *means, const struct erg_sampler_item *item)
{
    const struct erg_gpu_sample *sample = &item->sample;
    struct gpu_means *gpu = &means->gpus[item->gpu];
    const enum erg_metric metrics[ERG_IMBALANCES] = {
        [ERG_IMBALANCE_POWER] = erg_gpu_has(sample, ERG_METRIC_POWER_INSTANT)
                                    ? ERG_METRIC_POWER_INSTANT
                                    : ERG_METRIC_POWER_AVERAGE,
        [ERG_IMBALANCE_CLOCK] = ERG_METRIC_SM_CLOCK,
        [ERG_IMBALANCE_TEMPERATURE] = ERG_METRIC_TEMPERATURE,
    };
    for (int i = 0; i < ERG_IMBALANCES; i++)
        if (erg_gpu_has(sample, metrics[i])) {
            gpu->sums[i] += (double)sample->readings[metrics[i]].value;
            gpu->counts[i]++;
        }
}

void erg_imbalance_over_time(const struct erg_imbalance_means *means, double ratios[ERG_IMBALANCES])
{
    for (int i = 0; i < ERG_IMBALANCES; i++) {
        struct evenness all = {0};
        for (size_t g = 0; g < means->count; g++) {
            const struct gpu_means *gpu = &means->gpus[g];
            take(&all, gpu->counts[i] ? gpu->sums[i] / (double)gpu->counts[i] : NAN);
        }
        ratios[i] = ratio(&all);
    }
}

void erg_imbalance_free(struct erg_imbalance_means *means)
{
    free(means);
}

void erg_imbalance_text(struct erg_text *out, const double ratios[ERG_IMBALANCES])
{
    for (int i = 0; i < ERG_IMBALANCES; i++) {
        erg_text_printf(out, "%s%s ", i ? ", " : "", erg_imbalance_names[i]);
        if (isnan(ratios[i]))
            erg_text_add(out, "-");
        else
            erg_text_printf(out, "%.2f", ratios[i]);
    }
}
