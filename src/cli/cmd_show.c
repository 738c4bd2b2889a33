/* ergon show PLAN.json: the comparison that a plan holds, and the recipe of one of its points. */
#include "api/plan_chosen.h"
#include "cli/cli.h"
#include "io/print.h"

#include "base/memory.h"
#include "io/json.h"
#include "plan/plan.h"
#include "report/report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct show_values {
    const char *method;
    int pick;
    long point;
    double deadline_s, budget_j, straggler_s;
};

/* What is shown. */
struct choice {
    enum erg_method method;
    size_t point;
    const char *rule;
    double held_until_s; /* for a straggler; else 0 */
};

static const char *const picks[] = {"fastest", "least_energy", "knee", NULL};
static const enum erg_objective objectives[] = {ERG_FASTEST, ERG_LEAST_ENERGY, ERG_KNEE};

#define AT(member) offsetof(struct show_values, member)
static const struct erg_option options[] = {
    {"method", 'm', ERG_OPTION_TEXT, "NAME", AT(method),
     .help = "a point of this method (default: the plan's selected one)"},
    {"pick", 'k', ERG_OPTION_CHOICE, "RULE", AT(pick), .choices = picks,
     .help = "the point by its place on the frontier"},
    {"deadline", 'D', ERG_OPTION_DOUBLE, "SECONDS", AT(deadline_s), 1e-9, 1e15,
     .help = "the point of least energy within this time"},
    {"energy-budget", 'E', ERG_OPTION_DOUBLE, "JOULES", AT(budget_j), 1e-9, 1e18,
     .help = "the fastest point within this energy"},
    {"straggler", 'T', ERG_OPTION_DOUBLE, "SECONDS", AT(straggler_s), 1e-9, 1e15,
     .help = "the point of least energy when the pipeline has to wait until then anyway"},
    {"point", 'p', ERG_OPTION_LONG, "N", AT(point), 1, 1e9,
     .help = "the point of this number; 1 is the fastest"},
    {0},
};

/* ---- which point ---- */

static int choose(struct erg_plan *plan, const struct show_values *values, struct choice *choice,
                  struct erg_error *err)
{
    int given = (values->pick >= 0) + (values->point != ERG_NOT_GIVEN) +
                !isnan(values->deadline_s) + !isnan(values->budget_j) + !isnan(values->straggler_s);
    if (given > 1)
        return erg_fail(err, ERG_USAGE,
                        "--pick, --deadline, --energy-budget, --straggler and --point exclude each "
                        "other: each chooses one point.");
    struct erg_goal goal = {.objective = ERG_FASTEST};
    struct erg_plan_wish wish = {.method = values->method, .goal = given ? &goal : NULL};
    if (values->point != ERG_NOT_GIVEN) {
        wish.number = (size_t)values->point;
        wish.goal = NULL;
    }
    if (values->pick >= 0)
        goal.objective = objectives[values->pick];
    else if (!isnan(values->deadline_s))
        goal = (struct erg_goal){ERG_LEAST_ENERGY, .deadline_s = values->deadline_s};
    else if (!isnan(values->budget_j))
        goal.energy_j = values->budget_j;
    else if (!isnan(values->straggler_s))
        goal = (struct erg_goal){ERG_LEAST_ENERGY, .straggler_s = values->straggler_s};
    if (erg_plan_select(plan, &wish, err) != 0)
        return -1;
    *choice = (struct choice){plan->selected.method, plan->selected.point, plan->selected.rule,
                              goal.straggler_s};
    return 0;
}

/* ---- for people ---- */

/* Options of one stage in the order in which they are first run; a letter names each. */
struct legend {
    const struct erg_plan_option **items;
    size_t *forward; /* 1 if it runs forwards */
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

static void print_option_name(const struct legend *legend, const struct erg_plan_option *option)
{
    size_t k = legend_number(legend, option), number = 1;
    for (size_t i = 0; i < k; i++)
        number += legend->forward[i] == legend->forward[k];
    printf("%c%zu", legend->forward[k] ? 'F' : 'B', number);
}

/* How often the `period` options at `at` are repeated right there. */
static size_t repetitions(const struct erg_plan_option *const *run, size_t count, size_t at,
                          size_t period)
{
    size_t times = 1;
    while (at + (times + 1) * period <= count &&
           !memcmp(run + at, run + at + times * period, period * sizeof *run))
        times++;
    return times;
}

/* Runs of one option and of alternating pairs, as 1F1B makes them. */
static void print_sequence(const struct legend *legend, const struct erg_plan_option *const *run,
                           size_t count)
{
    for (size_t at = 0; at < count;) {
        size_t single = repetitions(run, count, at, 1);
        size_t pairs = at + 2 <= count ? repetitions(run, count, at, 2) : 1;
        size_t period = single == 1 && pairs > 1 ? 2 : 1;
        size_t times = period == 2 ? pairs : single;
        printf(at ? ", %s" : " %s", period == 2 ? "(" : "");
        for (size_t k = 0; k < period; k++) {
            if (k)
                printf(" ");
            print_option_name(legend, run[at + k]);
        }
        printf(period == 2 ? ")" : "");
        if (times > 1)
            printf(" x%zu", times);
        at += times * period;
    }
    puts("");
}

static void print_option(const struct legend *legend, size_t k)
{
    const struct erg_plan_option *option = legend->items[k];
    printf("  ");
    print_option_name(legend, option);
    printf("  %s  ", legend->forward[k] ? "forward " : "backward");
    if (legend->default_clock)
        printf("default clock");
    else
        printf("%d MHz", option->clock_mhz);
    printf("  %.4f s  %.2f J  %s", option->time_s, option->energy_j, erg_mode_name(option->mode));
    for (size_t i = 0; i < option->configuration_count; i++)
        printf("%s %s at %s on %d SM%s", i ? "," : ":", option->configurations[i].partition,
               option->configurations[i].slot, option->configurations[i].sms,
               erg_plural((size_t)option->configurations[i].sms));
    puts("");
}

static void print_stage(const struct erg_plan *plan, const struct erg_plan_point *point,
                        size_t stage)
{
    const struct erg_schedule *schedule = &plan->schedule;
    size_t count = schedule->per_stage, first = stage * count;
    const struct erg_plan_option **run = erg_xcalloc(count, sizeof *run);
    struct legend legend = {
        .items = erg_xcalloc(count, sizeof *legend.items),
        .forward = erg_xcalloc(count, sizeof *legend.forward),
        .default_clock = plan->kinds[0].mean_clock_mhz > 0,
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
    printf("Stage %zu", stage);
    if (plan->kind_count > 1)
        printf(", %s", erg_plan_stage_kind(plan, stage)->gpu);
    putchar(':');
    print_sequence(&legend, run, count);
    for (size_t k = 0; k < legend.count; k++)
        print_option(&legend, k);
    free(run);
    free(legend.items);
    free(legend.forward);
}

/* What a step takes, where that is known. */
static void print_beyond(const struct erg_plan *plan, const struct erg_plan_point *point)
{
    struct erg_plan_beyond beyond;
    erg_plan_beyond(&beyond, plan);
    if (isnan(beyond.time_s))
        return;
    printf("A step: %.4f s, %.1f J, of which %.4f s sum gradients and gather weights, %.4f s "
           "optimize, both %.1f J.\n",
           point->time_s + beyond.time_s, point->energy_j + beyond.energy_j, beyond.gradients_s,
           beyond.optimizer_s, beyond.energy_j);
}

static void print_point(const struct erg_plan *plan, const struct choice *choice)
{
    const struct erg_plan_point *point = &plan->methods[choice->method].points[choice->point];
    bool slower = choice->point >= plan->methods[choice->method].point_count;
    printf("%s, point %zu%s (%s): %.4f s, %.1f J", erg_method_name(choice->method),
           choice->point + 1, slower ? ", beyond the frontier" : "", choice->rule, point->time_s,
           point->energy_j);
    if (!isnan(point->static_energy_j))
        printf(", of which %.1f J static", point->static_energy_j);
    puts(".");
    if (choice->held_until_s > 0)
        printf("Held until %.4f s: %.1f J.\n", choice->held_until_s,
               erg_plan_held_energy(plan, point, choice->held_until_s));
    print_beyond(plan, point);
    puts("Times and energies below are of one instruction on one GPU.\n");
    for (size_t stage = 0; stage < plan->schedule.pipeline.stages; stage++)
        print_stage(plan, point, stage);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct erg_plan *plan;
    struct choice choice = {0};
    if (erg_plan_load(&plan, call->arguments[0], err))
        return -1;
    int status = choose(plan, call->values, &choice, err);
    if (!status && call->common.json) {
        erg_print_json(stdout, erg_plan_chosen_document(plan, choice.held_until_s));
    } else if (!status) {
        struct erg_text table = {0};
        json_t *document = erg_plan_json(plan);
        status = erg_report_table(&table, document, err);
        json_decref(document);
        if (!status) {
            puts(table.data);
            print_point(plan, &choice);
        }
        erg_text_release(&table);
    }
    erg_plan_free(plan);
    return status;
}

const struct erg_command erg_cmd_show = {
    .name = "show",
    .summary = "show what a plan saves, and the recipe of one of its points",
    .arguments = "PLAN.json",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct show_values),
    .options = options,
    .details =
        "PLAN.json is a plan that \"ergon optimize\", \"ergon plan\" or \"ergon frontier\" wrote. "
        "It is checked\ncompletely before anything is shown. The point shown is by default the one "
        "that was selected when\nthe plan was made: per stage the sequence of instructions, and "
        "for "
        "each kind of instruction its\nclock, how it runs, and the launch slot and SMs of every "
        "communication.",
    .examples = "  ergon show ergon-out/plan.json\n"
                "  ergon show ergon-out/plan.json --deadline 5.2\n"
                "  ergon show ergon-out/plan.json --method sequential+clocks --pick knee\n"
                "  ergon show ergon-out/plan.json --straggler 6.5 --json\n",
    .run = run,
};
