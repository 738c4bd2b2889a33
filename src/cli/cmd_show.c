/* ergon show PLAN.json: the comparison in a plan, and the recipe of one of its points. */
#include "cli/cli.h"

#include "base/option_value.h"
#include "ergon/plan.h"

#include <stdio.h>

struct show_values {
    const char *method, *pick;
    long point;
    double deadline_s, budget_j, straggler_s;
};

#define AT(member) offsetof(struct show_values, member)
static const struct erg_option options[] = {
    {"method", 'm', ERG_OPTION_TEXT, "NAME", AT(method),
     .help = "take a point of this method (default: the plan's selected point)"},
    {"pick", 'k', ERG_OPTION_WORD, "RULE", AT(pick), .words = ERG_WORDS_PICK,
     .help = "choose the point by its place on the frontier"},
    {"deadline", 'D', ERG_OPTION_DOUBLE, "SECONDS", AT(deadline_s), ERG_POINT_TIME_RANGE,
     .help = "choose the point of least energy within this time"},
    {"energy-budget", 'E', ERG_OPTION_DOUBLE, "JOULES", AT(budget_j), ERG_POINT_ENERGY_RANGE,
     .help = "choose the fastest point within this energy"},
    {"straggler", 'T', ERG_OPTION_DOUBLE, "SECONDS", AT(straggler_s), ERG_POINT_TIME_RANGE,
     .help =
         "choose the point of least energy for a pipeline that waits for another until this time"},
    {"point", 'p', ERG_OPTION_LONG, "N", AT(point), ERG_POINT_RANGE,
     .help = "choose the point of this number; 1 is the fastest"},
    {0},
};

static int choose(struct erg_plan *plan, const struct show_values *values, struct erg_error *err)
{
    const struct erg_plan_goal goal = {
        .size = sizeof goal,
        .method = values->method,
        .point = erg_given_number(values->point),
        .pick = values->pick,
        .deadline_s = erg_given_amount(values->deadline_s),
        .energy_j = erg_given_amount(values->budget_j),
        .straggler_s = erg_given_amount(values->straggler_s),
    };
    if ((goal.point > 0) + (goal.pick != NULL) + (goal.deadline_s > 0) + (goal.energy_j > 0) +
            (goal.straggler_s > 0) >
        1)
        return erg_fail(err, ERG_USAGE,
                        "--pick, --deadline, --energy-budget, --straggler and --point exclude each "
                        "other: each chooses one point");
    return erg_plan_choose(plan, &goal, err);
}

static int run(const struct erg_invocation *call, struct erg_error *err)
{
    struct erg_plan *plan;
    if (erg_plan_open(&plan, call->arguments[0], err) != 0)
        return -1;
    int status = choose(plan, call->values, err);
    if (status == 0 && call->common.json)
        puts(erg_plan_chosen_json(plan));
    else if (status == 0)
        fputs(erg_plan_chosen_text(plan), stdout);
    erg_plan_free(plan);
    return status;
}

const struct erg_command erg_cmd_show = {
    .name = "show",
    .summary = "show the savings of a plan, and the recipe of one of its points",
    .arguments = "PLAN.json",
    .least_arguments = 1,
    .most_arguments = 1,
    .common = ERG_COMMON_JSON,
    .values_bytes = sizeof(struct show_values),
    .options = options,
    .details = "PLAN.json was written by \"ergon optimize\", \"ergon layout\" or \"ergon "
               "frontier\". The whole plan is\n"
               "checked first. Default: the point that was selected when the plan was made. A "
               "recipe lists, per\n"
               "stage, the sequence of instructions, and for each kind of instruction its clock, "
               "its execution\n"
               "model, and the launch slot and SMs of every communication.",
    .examples = "  ergon show ergon-out/plan.json\n"
                "  ergon show ergon-out/plan.json --deadline 5.2\n"
                "  ergon show ergon-out/plan.json --method sequential+clocks --pick knee\n"
                "  ergon show ergon-out/plan.json --straggler 6.5 --json\n",
    .run = run,
};
