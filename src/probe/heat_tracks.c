/* Powers and temperatures of a recording, in equal steps of time. */
#include "probe/heat_fit.h"

#include "base/memory.h"
#include "telemetry/recording.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double least_s = 120;
static const int64_t second_ns = 1000000000, longest_gap_ns = 5000000000;
enum { MOST_STEPS = 4000 };

/* The latest change of a GPU's energy counter. */
struct energy_step {
    bool known;
    int64_t time_ns, energy_mj;
};

/* Sums of one step. */
struct step_sum {
    double energy_j, covered_s; /* by the counter */
    double power_w, temperature_c;
    size_t powers, temperatures;
};

struct track_reader {
    struct erg_heat_tracks *tracks;
    int64_t begin_ns;
    struct step_sum *sums; /* [gpu * count + step] */
    struct energy_step counters[ERG_CHASSIS_GPUS];
    double limit_c;
    size_t limits;
};

static struct step_sum *sum_at(const struct track_reader *reader, size_t gpu, int64_t time_ns)
{
    const struct erg_heat_tracks *tracks = reader->tracks;
    const double at = 1e-9 * (double)(time_ns - reader->begin_ns) / tracks->step_s;
    return at >= 0 && at < (double)tracks->count ? &reader->sums[gpu * tracks->count + (size_t)at]
                                                 : NULL;
}

/* Energy between two changes of the counter, at the same power all the time. */
static void spread(struct track_reader *reader, size_t gpu, const struct energy_step *from,
                   int64_t to_ns, int64_t energy_mj)
{
    const double power_w =
        1e6 * (double)(energy_mj - from->energy_mj) / (double)(to_ns - from->time_ns);
    const int64_t step_ns = (int64_t)(1e9 * reader->tracks->step_s);
    for (int64_t at_ns = from->time_ns; at_ns < to_ns;) {
        struct step_sum *sum = sum_at(reader, gpu, at_ns);
        const int64_t begun = (at_ns - reader->begin_ns) / step_ns;
        int64_t end_ns = reader->begin_ns + (begun + 1) * step_ns;
        if (at_ns < reader->begin_ns)
            end_ns = reader->begin_ns;
        end_ns = end_ns < to_ns ? end_ns : to_ns;
        if (sum) {
            sum->covered_s += 1e-9 * (double)(end_ns - at_ns);
            sum->energy_j += power_w * 1e-9 * (double)(end_ns - at_ns);
        }
        at_ns = end_ns;
    }
}

static void take_energy(struct track_reader *reader, size_t gpu, const struct erg_reading *reading)
{
    struct energy_step *counter = &reader->counters[gpu];
    const int64_t past_ns = reading->time_ns - counter->time_ns;
    if (counter->known && reading->value == counter->energy_mj && past_ns < longest_gap_ns)
        return; /* it moves in steps */
    if (counter->known && reading->value > counter->energy_mj && past_ns > 0 &&
        past_ns < longest_gap_ns)
        spread(reader, gpu, counter, reading->time_ns, reading->value);
    *counter = (struct energy_step){true, reading->time_ns, reading->value};
}

static void take_sample(struct track_reader *reader, const struct erg_sampler_item *item)
{
    const struct erg_gpu_sample *sample = &item->sample;
    const struct erg_reading *readings = sample->readings;
    const enum erg_metric power = erg_gpu_has(sample, ERG_METRIC_POWER_INSTANT)
                                      ? ERG_METRIC_POWER_INSTANT
                                      : ERG_METRIC_POWER_AVERAGE;
    struct step_sum *sum;
    if (erg_gpu_has(sample, ERG_METRIC_ENERGY))
        take_energy(reader, item->gpu, &readings[ERG_METRIC_ENERGY]);
    if (erg_gpu_has(sample, power) &&
        (sum = sum_at(reader, item->gpu, readings[power].time_ns)) != NULL) {
        sum->power_w += 1e-3 * (double)readings[power].value;
        sum->powers++;
    }
    if (!erg_gpu_has(sample, ERG_METRIC_TEMPERATURE))
        return;
    const double temperature_c = (double)readings[ERG_METRIC_TEMPERATURE].value;
    if ((sum = sum_at(reader, item->gpu, readings[ERG_METRIC_TEMPERATURE].time_ns)) != NULL) {
        sum->temperature_c += temperature_c + 0.5; /* sensors cut to whole degrees */
        sum->temperatures++;
    }
    if (erg_gpu_has(sample, ERG_METRIC_MARGIN)) {
        reader->limit_c += temperature_c + (double)readings[ERG_METRIC_MARGIN].value;
        reader->limits++;
    }
}

/* Hands each sample to the reader, where there is one; notes the time that they span. */
static int read_all(const char *path, struct track_reader *reader, int64_t *begin_ns,
                    int64_t *end_ns, struct erg_error *err)
{
    struct erg_recording *recording;
    struct erg_sampler_item item;
    int64_t unix_ns;
    int more;
    if (erg_recording_open(&recording, path, err) != 0)
        return -1;
    *begin_ns = INT64_MAX;
    *end_ns = INT64_MIN;
    while ((more = erg_recording_next(recording, &item, &unix_ns, err)) == 1) {
        if (reader)
            take_sample(reader, &item);
        *begin_ns = item.sample.start_ns < *begin_ns ? item.sample.start_ns : *begin_ns;
        *end_ns = item.sample.end_ns > *end_ns ? item.sample.end_ns : *end_ns;
    }
    erg_recording_close(recording);
    return more;
}

static int open_tracks(struct erg_heat_tracks *tracks, const char *path, struct erg_error *err)
{
    struct erg_recording *recording;
    if (erg_recording_open(&recording, path, err) != 0)
        return -1;
    tracks->gpus = erg_recording_gpus(recording);
    tracks->is_virtual = erg_recording_is_virtual(recording);
    tracks->infos = erg_xcalloc(tracks->gpus, sizeof *tracks->infos);
    for (size_t g = 0; g < tracks->gpus; g++)
        tracks->infos[g] = *erg_recording_gpu(recording, g);
    erg_recording_close(recording);
    if (tracks->gpus <= ERG_CHASSIS_GPUS)
        return 0;
    return erg_fail(err, ERG_FAILED, "reading heat of '%s': it has %zu GPUs, expected at most %d",
                    path, tracks->gpus, ERG_CHASSIS_GPUS);
}

/* A step without power has the power of the step before. */
static int finish_gpu(const struct track_reader *reader, size_t gpu, const char *path,
                      struct erg_error *err)
{
    struct erg_heat_tracks *tracks = reader->tracks;
    const struct step_sum *sums = &reader->sums[gpu * tracks->count];
    double *power_w = &tracks->power_w[gpu * tracks->count], latest_w = NAN;
    size_t temperatures = 0;
    for (size_t i = tracks->count; i-- > 0;) { /* the first known, for those before it */
        if (sums[i].covered_s > 0.5 * tracks->step_s)
            power_w[i] = sums[i].energy_j / sums[i].covered_s;
        else
            power_w[i] = sums[i].powers ? sums[i].power_w / (double)sums[i].powers : NAN;
        latest_w = isnan(power_w[i]) ? latest_w : power_w[i];
    }
    for (size_t i = 0; i < tracks->count; i++) {
        power_w[i] = isnan(power_w[i]) ? latest_w : power_w[i];
        latest_w = power_w[i];
        const size_t count = sums[i].temperatures;
        tracks->temperature_c[gpu * tracks->count + i] =
            count ? sums[i].temperature_c / (double)count : NAN;
        temperatures += count > 0;
    }
    if (isnan(latest_w) || temperatures < tracks->count / 4)
        return erg_fail(err, ERG_FAILED,
                        "reading heat of '%s': GPU %d has no %s; expected a recording with power "
                        "and temperature of every GPU (ergon record)",
                        path, tracks->infos[gpu].index,
                        isnan(latest_w) ? "power" : "temperature most of the time");
    return 0;
}

int erg_heat_tracks_read(struct erg_heat_tracks *tracks, const char *path, struct erg_error *err)
{
    struct track_reader reader = {.tracks = tracks};
    int64_t end_ns, ignored_ns, span_s;
    *tracks = (struct erg_heat_tracks){.hold_c = NAN};
    if (open_tracks(tracks, path, err) != 0 ||
        read_all(path, NULL, &reader.begin_ns, &end_ns, err) != 0)
        return -1;
    span_s = end_ns > reader.begin_ns ? (end_ns - reader.begin_ns) / second_ns : 0;
    if ((double)span_s < least_s)
        return erg_fail(err, ERG_FAILED,
                        "reading heat of '%s': it lasts %lld s, expected two minutes or more", path,
                        (long long)span_s);
    const int64_t step_s = 1 + span_s / MOST_STEPS;
    tracks->step_s = (double)step_s;
    tracks->count = (size_t)((double)span_s / tracks->step_s);
    const size_t cells = tracks->gpus * tracks->count;
    tracks->power_w = erg_xcalloc(cells, sizeof *tracks->power_w);
    tracks->temperature_c = erg_xcalloc(cells, sizeof *tracks->temperature_c);
    reader.sums = erg_xcalloc(cells, sizeof *reader.sums);
    int status = read_all(path, &reader, &ignored_ns, &ignored_ns, err);
    for (size_t g = 0; g < tracks->gpus && status == 0; g++)
        status = finish_gpu(&reader, g, path, err);
    if (reader.limits)
        tracks->hold_c = round(reader.limit_c / (double)reader.limits);
    free(reader.sums);
    return status;
}

void erg_heat_tracks_release(struct erg_heat_tracks *tracks)
{
    free(tracks->power_w);
    free(tracks->temperature_c);
    free(tracks->infos);
    *tracks = (struct erg_heat_tracks){0};
}
