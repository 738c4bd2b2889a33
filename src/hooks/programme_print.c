/* The programme of a rank as a table and as JSON. */
#include "hooks/programme_print.h"

#include "io/json.h"
#include "io/print.h"

#include <stdlib.h>

/* The programme to show. */
struct shown {
    const struct erg_plan *plan;
    enum erg_method method;
    size_t point, stage;
    struct erg_programme programme;
};

static int compile(const struct erg_programme_shown_input *values, struct shown *shown,
                   struct erg_error *err)
{
    const struct erg_programme_input input = {
        .method = values->method,
        .number = values->number,
        .stage = values->stage,
        .clocks_only = values->clocks_only,
    };
    if (erg_programme_choose(shown->plan, &input, &shown->method, &shown->point, err) != 0)
        return -1;
    shown->stage = (size_t)values->stage;
    struct erg_programme_request request = {
        .plan = shown->plan,
        .point = &shown->plan->methods[shown->method].points[shown->point],
        .stage = shown->stage,
    };
    erg_programme_bound(&request, values->dwell_s, values->least_change_mhz);
    return erg_programme_init(&shown->programme, &request, err);
}

/* The lowest and the highest planned clock of a group. */
static void planned_range(const struct erg_programme *programme, uint32_t g, int *low, int *high)
{
    *low = *high = programme->passes[programme->groups[g].first].planned_mhz;
    for (uint32_t i = programme->groups[g].first; i < programme->groups[g].end; i++) {
        int planned_mhz = programme->passes[i].planned_mhz;
        *low = planned_mhz < *low ? planned_mhz : *low;
        *high = planned_mhz > *high ? planned_mhz : *high;
    }
}

static void print_text(FILE *out, const struct shown *shown)
{
    static const char *const heads[] = {"from s", "passes", "MHz", "planned MHz"};
    const struct erg_programme *programme = &shown->programme;
    struct erg_table table = {0};
    fprintf(out, "Stage %zu of %zu, %s, point %zu: an iteration of %.4f s.\n", shown->stage,
            shown->plan->schedule.pipeline.stages, erg_method_name(shown->method), shown->point + 1,
            programme->step_s);
    fprintf(out,
            "%u change%s of clock in it, planned %u; its %u passes use %.2f J on one GPU, planned "
            "%.2f J (%+.2f %%).\n\n",
            programme->changes, erg_plural(programme->changes), programme->planned_changes,
            programme->count, programme->energy_j, programme->planned_j,
            100 * (programme->energy_j / programme->planned_j - 1));
    erg_print_heads(&table, heads, sizeof heads / sizeof *heads);
    for (uint32_t g = 0; g < programme->group_count; g++) {
        const struct erg_programme_group *group = &programme->groups[g];
        int low, high;
        planned_range(programme, g, &low, &high);
        erg_table_add(&table, "%.4f", programme->passes[group->first].start_s);
        erg_table_add(&table, "%u", group->end - group->first);
        erg_table_add(&table, "%d", group->clock_mhz);
        if (low == high)
            erg_table_add(&table, "%d", low);
        else
            erg_table_add(&table, "%d to %d", low, high);
    }
    erg_print_table(out, &table, "  ");
    fprintf(out, "\nOutside of steps: %d MHz.\n", programme->highest_mhz);
}

static void print_json(FILE *out, const struct shown *shown)
{
    const struct erg_programme *programme = &shown->programme;
    json_t *groups = json_array();
    for (uint32_t g = 0; g < programme->group_count; g++) {
        const struct erg_programme_group *group = &programme->groups[g];
        json_t *planned = json_array();
        for (uint32_t i = group->first; i < group->end; i++)
            json_array_append_new(planned, json_integer(programme->passes[i].planned_mhz));
        json_array_append_new(groups,
                              erg_json_pack("{s:f, s:I, s:I, s:i, s:o}", "start_s",
                                            programme->passes[group->first].start_s, "first",
                                            (json_int_t)group->first, "passes",
                                            (json_int_t)(group->end - group->first), "clock_mhz",
                                            group->clock_mhz, "planned_mhz", planned));
    }
    erg_print_json(out, erg_json_pack("{s:i, s:s, s:I, s:I, s:f, s:I, s:I, s:f, s:f, s:i, s:o}",
                                      "schema_version", 1, "method", erg_method_name(shown->method),
                                      "point", (json_int_t)shown->point, "stage",
                                      (json_int_t)shown->stage, "time_s", programme->step_s,
                                      "changes", (json_int_t)programme->changes, "planned_changes",
                                      (json_int_t)programme->planned_changes, "energy_j",
                                      programme->energy_j, "planned_energy_j", programme->planned_j,
                                      "highest_mhz", programme->highest_mhz, "groups", groups));
}

int erg_programme_print(FILE *text, FILE *json, const struct erg_programme_shown_input *input,
                        struct erg_error *err)
{
    struct shown shown = {0};
    struct erg_plan *plan;
    if (erg_plan_load(&plan, input->plan, err) != 0)
        return -1;
    shown.plan = plan;
    int status = compile(input, &shown, err);
    if (status == 0) {
        print_text(text, &shown);
        print_json(json, &shown);
    }
    erg_programme_release(&shown.programme);
    erg_plan_free(plan);
    return status;
}
