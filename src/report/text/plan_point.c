/* The selected point of a plan for people: the instructions of each stage, and how they run. */
#include "report/text/plan_point.h"

#include "base/memory.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Options of one stage in the order of their first use; a letter names each. */
struct legend {
    const struct erg_plan_option **items;
    size_t *forward; /* 1 for a forward pass */
    size_t count;
    bool default_clock; /* the GPUs chose their clocks themselves */
};

static size_t legend_number(const struct legend *legend, const struct erg_plan_option *option)
{
    size_t k = 0;
    while (legend->items[k] != option)
        k++;
    return k;
}

static void print_option_name(FILE *out, const struct legend *legend,
                              const struct erg_plan_option *option)
{
    size_t k = legend_number(legend, option), number = 1;
    for (size_t i = 0; i < k; i++)
        number += legend->forward[i] == legend->forward[k];
    fprintf(out, "%c%zu", legend->forward[k] ? 'F' : 'B', number);
}

/* Occurrences in a row of the `period` options at `at`, the first included. */
static size_t repetitions(const struct erg_plan_option *const *run, size_t count, size_t at,
                          size_t period)
{
    size_t times = 1;
    while (at + (times + 1) * period <= count &&
           !memcmp(run + at, run + at + times * period, period * sizeof *run))
        times++;
    return times;
}

/* Repetitions of one option and of alternating pairs, as in 1F1B. */
static void print_sequence(FILE *out, const struct legend *legend,
                           const struct erg_plan_option *const *run, size_t count)
{
    for (size_t at = 0; at < count;) {
        size_t single = repetitions(run, count, at, 1);
        size_t pairs = at + 2 <= count ? repetitions(run, count, at, 2) : 1;
        size_t period = single == 1 && pairs > 1 ? 2 : 1;
        size_t times = period == 2 ? pairs : single;
        fprintf(out, "%s %s", at ? "," : "", period == 2 ? "(" : "");
        for (size_t k = 0; k < period; k++) {
            if (k)
                fprintf(out, " ");
            print_option_name(out, legend, run[at + k]);
        }
        fprintf(out, "%s", period == 2 ? ")" : "");
        if (times > 1)
            fprintf(out, " x%zu", times);
        at += times * period;
    }
    fputs("\n", out);
}

static void print_option(FILE *out, const struct legend *legend, size_t k)
{
    const struct erg_plan_option *option = legend->items[k];
    fprintf(out, "  ");
    print_option_name(out, legend, option);
    fprintf(out, "  %s  ", legend->forward[k] ? "forward " : "backward");
    if (legend->default_clock)
        fprintf(out, "default clock");
    else
        fprintf(out, "%d MHz", option->clock_mhz);
    fprintf(out, "  %.4f s  %.2f J  %s", option->time_s, option->energy_j,
            erg_mode_name(option->mode));
    for (size_t i = 0; i < option->configuration_count; i++)
        fprintf(out, "%s %s at %s on %d SM%s", i ? "," : ":", option->configurations[i].partition,
                option->configurations[i].slot, option->configurations[i].sms,
                erg_plural((size_t)option->configurations[i].sms));
    fputs("\n", out);
}

static void print_stage(FILE *out, const struct erg_plan *plan, const struct erg_plan_point *point,
                        size_t stage)
{
    const struct erg_schedule *schedule = &plan->schedule;
    size_t count = schedule->per_stage, first = stage * count;
    const struct erg_plan_option **run = erg_xcalloc(count, sizeof *run);
    struct legend legend = {
        .items = erg_xcalloc(count, sizeof *legend.items),
        .forward = erg_xcalloc(count, sizeof *legend.forward),
        .default_clock = !isnan(erg_plan_stage_kind(plan, stage)->mean_clock_mhz),
    };
    for (size_t i = 0; i < count; i++) {
        run[i] = erg_plan_option(plan, point, first + i);
        size_t k = 0;
        while (k < legend.count && legend.items[k] != run[i])
            k++;
        legend.items[k] = run[i];
        legend.forward[k] = schedule->instructions[first + i].direction == ERG_FORWARD;
        legend.count += k == legend.count;
    }
    fprintf(out, "Stage %zu", stage);
    if (plan->kind_count > 1)
        fprintf(out, ", %s", erg_plan_stage_kind(plan, stage)->gpu);
    putc(':', out);
    print_sequence(out, &legend, run, count);
    for (size_t k = 0; k < legend.count; k++)
        print_option(out, &legend, k);
    free(run);
    free(legend.items);
    free(legend.forward);
}

/* Time and energy of a step, if known. */
static void print_beyond(FILE *out, const struct erg_plan *plan, const struct erg_plan_point *point)
{
    struct erg_plan_beyond beyond;
    erg_plan_beyond(&beyond, plan);
    if (isnan(beyond.time_s))
        return;
    fprintf(out,
            "A step: %.4f s, %.1f J; of these, the gradient sums and weight gathers take %.4f s, "
            "the optimizer %.4f s, both %.1f J.\n",
            point->time_s + beyond.time_s, point->energy_j + beyond.energy_j, beyond.gradients_s,
            beyond.optimizer_s, beyond.energy_j);
}

void erg_plan_point_print(FILE *out, const struct erg_plan *plan)
{
    const struct erg_plan_selection *choice = &plan->selected;
    const struct erg_plan_point *point = &plan->methods[choice->method].points[choice->point];
    bool slower = choice->point >= plan->methods[choice->method].point_count;
    fprintf(out, "%s, point %zu%s (%s): %.4f s, %.1f J", erg_method_name(choice->method),
            choice->point + 1, slower ? ", beyond the frontier" : "", choice->rule, point->time_s,
            point->energy_j);
    if (!isnan(point->static_energy_j))
        fprintf(out, ", including %.1f J static", point->static_energy_j);
    fputs(".\n", out);
    if (choice->held_until_s > 0)
        fprintf(out, "If another pipeline takes %.4f s: %.1f J.\n", choice->held_until_s,
                erg_plan_held_energy(plan, point, choice->held_until_s));
    print_beyond(out, plan, point);
    fputs("Times and energies below are per instruction and GPU.\n"
          "\n",
          out);
    for (size_t stage = 0; stage < plan->schedule.pipeline.stages; stage++)
        print_stage(out, plan, point, stage);
}
