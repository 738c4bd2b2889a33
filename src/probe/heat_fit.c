/* The constants of a chassis that explain a recording, by least squares on the model itself. */
#include "probe/heat_fit.h"

#include "base/least_squares.h"
#include "base/memory.h"
#include "base/statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Parameters, as logarithms of factors on the start; of each GPU also the air, in tens of K. */
enum { DIE_TIME, SINK_TIME, AIR_PER_W, FIRST_GPU, OF_GPU = 3 };
enum { MOST_PARAMETERS = FIRST_GPU + OF_GPU * ERG_CHASSIS_GPUS };

static const double air_unit_k = 10, residual_k = 0.5, assumed_hold_c = 87, assumed_lag_s = 0.2;
static const double held_out_s = 30, beginning_s = 30, least_change = 0.8;
static const double least_gap = 1.12, guess_share = 0.97; /* that distinguishes GPUs */
enum { HELD_OUT_EACH = 5, ITERATIONS = 30 };

struct heat_problem {
    const struct erg_heat_tracks *tracks;
    const bool *used;
    size_t count; /* steps that are simulated: beyond them none is used */
    struct erg_chassis start, *chassis;
    double start_air_c[ERG_CHASSIS_GPUS];
};

/* ---- the model along a recording ---- */

/* Goes through one step. Temperatures in its middle less those that were read, in K; NAN where
 * nothing was. */
static void go_through(struct erg_thermal_state *state, const struct erg_heat_tracks *tracks,
                       size_t step, double *differences)
{
    double power_w[ERG_CHASSIS_GPUS];
    for (size_t g = 0; g < tracks->gpus; g++)
        power_w[g] = tracks->power_w[g * tracks->count + step];
    erg_thermal_step(state, power_w, 0.5 * tracks->step_s);
    for (size_t g = 0; g < tracks->gpus; g++)
        differences[g] = state->die_c[g] - tracks->temperature_c[g * tracks->count + step];
    erg_thermal_step(state, power_w, 0.5 * tracks->step_s);
}

/* Corrects the first temperatures of the sinks by the mean difference in the first half minute. */
static void correct_sinks(struct erg_thermal_state *state, const struct erg_heat_tracks *tracks)
{
    const struct erg_chassis *chassis = state->chassis;
    const size_t steps = (size_t)fmin((double)tracks->count, ceil(beginning_s / tracks->step_s));
    const double share = (double)steps * tracks->step_s / chassis->sink_time_s;
    const double left = -expm1(-share) / share; /* of a difference at the beginning, on average */
    struct erg_thermal_state tried = *state;
    double sum[ERG_CHASSIS_GPUS] = {0}, differences[ERG_CHASSIS_GPUS];
    size_t count[ERG_CHASSIS_GPUS] = {0};
    for (size_t i = 0; i < steps; i++) {
        go_through(&tried, tracks, i, differences);
        for (size_t g = 0; g < tracks->gpus; g++)
            if (!isnan(differences[g])) {
                sum[g] += differences[g];
                count[g]++;
            }
    }
    for (size_t g = 0; g < tracks->gpus; g++)
        if (count[g] && chassis->slots[g].sink == (int)g)
            state->sink_c[g] -= sum[g] / (double)count[g] / left;
}

/* The first temperature that was read; the sink follows from the later data. */
static void begin(struct erg_thermal_state *state, const struct erg_chassis *chassis,
                  const struct erg_heat_tracks *tracks)
{
    double power_w[ERG_CHASSIS_GPUS];
    for (size_t g = 0; g < tracks->gpus; g++)
        power_w[g] = tracks->power_w[g * tracks->count];
    erg_thermal_begin(state, chassis, power_w);
    for (size_t g = 0; g < tracks->gpus; g++) {
        const double *read = &tracks->temperature_c[g * tracks->count];
        size_t first = 0;
        while (first < tracks->count && isnan(read[first]))
            first++;
        if (first < tracks->count)
            state->die_c[g] = read[first];
    }
    for (int i = 0; i < 3; i++)
        correct_sinks(state, tracks);
}

/* Temperatures less those that were read, in K; 0 in steps without a reading and in unused ones. */
static void follow(const struct erg_chassis *chassis, const struct erg_heat_tracks *tracks,
                   const bool *used, size_t count, double *differences)
{
    struct erg_thermal_state state;
    double of_step[ERG_CHASSIS_GPUS];
    begin(&state, chassis, tracks);
    for (size_t i = 0; i < count; i++) {
        go_through(&state, tracks, i, of_step);
        for (size_t g = 0; g < tracks->gpus; g++)
            differences[g * count + i] = !isnan(of_step[g]) && (!used || used[i]) ? of_step[g] : 0;
    }
}

int erg_heat_explain(const struct erg_chassis *chassis, const struct erg_heat_tracks *tracks,
                     const bool *used, struct erg_heat_error *error, struct erg_error *err)
{
    if (chassis->gpus != tracks->gpus)
        return erg_fail(err, ERG_FAILED,
                        "explaining a recording of %zu GPU%s by the chassis %s: it has %u slots",
                        tracks->gpus, erg_plural(tracks->gpus), chassis->name, chassis->gpus);
    double *differences = erg_xcalloc(tracks->gpus * tracks->count, sizeof *differences);
    double squares = 0;
    *error = (struct erg_heat_error){0};
    follow(chassis, tracks, used, tracks->count, differences);
    for (size_t i = 0; i < tracks->gpus * tracks->count; i++) {
        error->worst_k = fmax(error->worst_k, fabs(differences[i]));
        squares += differences[i] * differences[i];
        error->count += !isnan(tracks->temperature_c[i]) && (!used || used[i % tracks->count]);
    }
    error->rms_k = error->count ? sqrt(squares / (double)error->count) : NAN;
    free(differences);
    return 0;
}

/* ---- the fit ---- */

static void apply(struct heat_problem *problem, const double *x)
{
    const struct erg_chassis *start = &problem->start;
    struct erg_chassis *chassis = problem->chassis;
    double least_c = INFINITY, air_c[ERG_CHASSIS_GPUS] = {0};
    chassis->die_time_s = start->die_time_s * exp(x[DIE_TIME]);
    chassis->sink_time_s = start->sink_time_s * exp(x[SINK_TIME]);
    chassis->air_k_per_w = start->air_k_per_w * exp(x[AIR_PER_W]);
    for (unsigned g = 0; g < chassis->gpus; g++) {
        const double *own = &x[FIRST_GPU + OF_GPU * g];
        chassis->slots[g].die_k_per_w = start->slots[g].die_k_per_w * exp(own[0]);
        chassis->slots[g].sink_k_per_w = start->slots[g].sink_k_per_w * exp(own[1]);
        air_c[g] = problem->start_air_c[g] + air_unit_k * own[2];
        least_c = fmin(least_c, air_c[g]);
    }
    chassis->inlet_c = least_c;
    for (unsigned g = 0; g < chassis->gpus; g++)
        chassis->slots[g].preheat_k = air_c[g] - least_c;
}

static int residuals(void *context, const double *x, double *out, struct erg_error *err)
{
    struct heat_problem *problem = context;
    (void)err;
    for (size_t k = 0; k < FIRST_GPU + OF_GPU * problem->tracks->gpus; k++)
        if (!(fabs(x[k]) < 4)) { /* far from any chassis */
            for (size_t i = 0; i < problem->count * problem->tracks->gpus; i++)
                out[i] = INFINITY;
            return 0;
        }
    apply(problem, x);
    follow(problem->chassis, problem->tracks, problem->used, problem->count, out);
    for (size_t i = 0; i < problem->count * problem->tracks->gpus; i++)
        out[i] /= residual_k;
    return 0;
}

/* Puts the slots in lanes by the survey's pairs. */
static void place(struct erg_heat_fit *fit, const struct erg_heat_tracks *tracks)
{
    const struct erg_heat_survey *survey = &fit->survey;
    double k_per_w = 0;
    int lanes = 0;
    for (size_t g = 0; g < tracks->gpus; g++)
        fit->slots[g] = (struct erg_chassis_slot){
            .position = ERG_SLOT_FRONT,
            .sink = (int)g,
            .die_k_per_w = fmax(survey->die_k_per_w[g], 0.003),
            .sink_k_per_w = fmax(survey->sink_k_per_w[g], 0.003),
        };
    for (size_t i = 0; i < survey->pair_count; i++) {
        fit->slots[survey->pairs[i].rear].position = ERG_SLOT_REAR;
        k_per_w += survey->pairs[i].k_per_w / (double)survey->pair_count;
    }
    for (size_t g = 0; g < tracks->gpus; g++)
        if (fit->slots[g].position == ERG_SLOT_FRONT)
            fit->slots[g].lane = lanes++;
    for (size_t i = 0; i < survey->pair_count; i++)
        fit->slots[survey->pairs[i].rear].lane = fit->slots[survey->pairs[i].front].lane;
    fit->chassis.air_k_per_w = k_per_w;
}

static void choose_used(const struct erg_heat_tracks *tracks, double until_s, bool *used)
{
    for (size_t i = 0; i < tracks->count; i++) {
        const double at_s = (double)i * tracks->step_s;
        used[i] = until_s > 0 ? at_s < until_s
                              : (long)(at_s / held_out_s) % HELD_OUT_EACH != HELD_OUT_EACH - 1;
    }
}

/* Refuses powers that hardly change: a constant power does not determine resistances. */
static int check_powers(const struct erg_heat_tracks *tracks, const bool *used,
                        struct erg_error *err)
{
    for (size_t g = 0; g < tracks->gpus; g++) {
        const double *power_w = &tracks->power_w[g * tracks->count];
        double least = INFINITY, most = -INFINITY;
        for (size_t i = 0; i < tracks->count; i++)
            if (used[i]) {
                least = fmin(least, power_w[i]);
                most = fmax(most, power_w[i]);
            }
        if (!(least < least_change * most))
            return erg_fail(err, ERG_FAILED,
                            "fitting heat: GPU %d draws %.0f to %.0f W in the fitted data; "
                            "expected a recording in which every GPU works and rests",
                            tracks->infos[g].index, least, most);
    }
    return 0;
}

static int minimise(struct heat_problem *problem, struct erg_error *err)
{
    const size_t parameters = FIRST_GPU + OF_GPU * problem->tracks->gpus;
    double x[MOST_PARAMETERS] = {0}, sd[MOST_PARAMETERS];
    for (size_t k = 0; k < parameters; k++)
        sd[k] = 2;
    int status = erg_least_squares(residuals, problem, parameters, sd,
                                   problem->count * problem->tracks->gpus, ITERATIONS, x, err);
    if (status == 0)
        apply(problem, x);
    return status;
}

/* The value for all slots is their median. */
static void summarise(struct erg_chassis *chassis)
{
    double die[ERG_CHASSIS_GPUS], sink[ERG_CHASSIS_GPUS];
    for (unsigned g = 0; g < chassis->gpus; g++) {
        die[g] = chassis->slots[g].die_k_per_w;
        sink[g] = chassis->slots[g].sink_k_per_w;
    }
    chassis->die_k_per_w = erg_median(die, chassis->gpus);
    chassis->sink_k_per_w = erg_median(sink, chassis->gpus);
}

/* From the survey's start, with its pairs. */
static int fit_pairs(struct erg_heat_fit *fit, struct heat_problem *problem, struct erg_error *err)
{
    struct erg_chassis_slot start[ERG_CHASSIS_GPUS];
    fit->chassis.die_time_s = fit->survey.die_time_s;
    fit->chassis.sink_time_s = fit->survey.sink_time_s;
    place(fit, problem->tracks);
    memcpy(start, fit->slots, sizeof start);
    problem->start = fit->chassis;
    problem->start.slots = start;
    memcpy(problem->start_air_c, fit->survey.air_c, sizeof problem->start_air_c);
    return minimise(problem, err) != 0 || erg_heat_explain(&fit->chassis, problem->tracks,
                                                           problem->used, &fit->fitted, err) != 0
               ? -1
               : 0;
}

/*
 * GPUs that worked at the same times: those that warm by more per watt than the others may be in
 * air that others have warmed, which is delayed compared with their own heat. False where they do
 * not fall into two groups.
 */
static bool guess_pairs(const struct erg_heat_fit *fit, struct erg_heat_survey *survey)
{
    size_t order[ERG_CHASSIS_GPUS], fronts = 0;
    double k_per_w[ERG_CHASSIS_GPUS], widest = least_gap;
    const size_t gpus = fit->chassis.gpus;
    for (size_t g = 0; g < gpus; g++) {
        size_t at = g;
        k_per_w[g] = fit->slots[g].die_k_per_w + fit->slots[g].sink_k_per_w;
        for (; at > 0 && k_per_w[order[at - 1]] > k_per_w[g]; at--)
            order[at] = order[at - 1];
        order[at] = g;
    }
    for (size_t i = 1; i < gpus; i++) {
        const double gap = k_per_w[order[i]] / k_per_w[order[i - 1]];
        if (2 * i >= gpus && gap > widest) {
            widest = gap;
            fronts = i;
        }
    }
    if (!fronts)
        return false;
    survey->pair_count = 0;
    const double front = k_per_w[order[fronts / 2]];
    for (size_t i = fronts; i < gpus; i++) {
        const size_t rear = order[i];
        const double share = front / k_per_w[rear];
        survey->pairs[survey->pair_count++] =
            (struct erg_heat_pair){order[i - fronts], rear, k_per_w[rear] - front};
        survey->die_k_per_w[rear] = fit->slots[rear].die_k_per_w * share;
        survey->sink_k_per_w[rear] = fit->slots[rear].sink_k_per_w * share;
    }
    return true;
}

/* Takes the guess where it explains more. */
static int try_guess(struct erg_heat_fit *fit, struct heat_problem *problem, struct erg_error *err)
{
    struct erg_heat_fit *other = erg_xcalloc(1, sizeof *other);
    *other = *fit;
    other->chassis.slots = other->slots;
    int status = 0;
    if (guess_pairs(fit, &other->survey)) {
        problem->chassis = &other->chassis;
        status = fit_pairs(other, problem, err);
        problem->chassis = &fit->chassis;
        if (status == 0 && other->fitted.rms_k < guess_share * fit->fitted.rms_k) {
            *fit = *other;
            fit->chassis.slots = fit->slots;
        }
    }
    free(other);
    return status;
}

int erg_heat_fit(struct erg_heat_fit *fit, const struct erg_heat_tracks *tracks, double until_s,
                 const char *name, struct erg_error *err)
{
    bool *used = erg_xcalloc(tracks->count, sizeof *used);
    *fit = (struct erg_heat_fit){.until_s = until_s};
    fit->chassis = (struct erg_chassis){
        .name = (char *)(uintptr_t)name,
        .slots = fit->slots,
        .gpus = (unsigned)tracks->gpus,
        .sensor_lag_s = assumed_lag_s,
        .limit = {.hold_c = isnan(tracks->hold_c) ? assumed_hold_c : tracks->hold_c,
                  .slowdown_k = 5},
    };
    struct heat_problem problem = {.tracks = tracks, .used = used, .chassis = &fit->chassis};
    choose_used(tracks, until_s, used);
    while (problem.count < tracks->count && (until_s <= 0 || used[problem.count]))
        problem.count++;
    int status = check_powers(tracks, used, err);
    if (status == 0) {
        erg_heat_survey(tracks, used, &fit->survey);
        status = fit_pairs(fit, &problem, err);
        if (status == 0 && fit->survey.coupling == ERG_HEAT_UNKNOWN)
            status = try_guess(fit, &problem, err);
        summarise(&fit->chassis);
    }
    for (size_t i = 0; i < tracks->count; i++)
        used[i] = !used[i];
    if (status == 0)
        status = erg_heat_explain(&fit->chassis, tracks, used, &fit->held_out, err);
    free(used);
    return status;
}
