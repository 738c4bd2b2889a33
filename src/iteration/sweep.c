/* The planned frontier without plans. */
#include "iteration/tables_internal.h"

struct passing {
    struct timecost_visitor visitor;
    const struct option_tables *tables;
    const struct erg_schedule *schedule;
    bool (*each)(void *context, struct erg_breakpoint at, double slope_w);
    void *context;
    double cost_j; /* C where the sweep is */
};

static void pass_on(struct passing *passing, int64_t ticks, double slope_w)
{
    const struct erg_breakpoint at = {(double)ticks * passing->tables->tick_s, passing->cost_j};
    passing->visitor.enough |= !passing->each(passing->context, at, slope_w);
}

static void pass_piece(struct timecost_visitor *visitor, int32_t from, int32_t to, int64_t slope)
{
    struct passing *passing = visitor->context;
    double slope_w = (double)slope * passing->tables->slope_unit_w;
    passing->cost_j += slope_w * (double)(from - to) * passing->tables->tick_s;
    pass_on(passing, to, slope_w);
}

static int sweep(struct passing *passing, struct erg_error *err)
{
    const struct erg_schedule *schedule = passing->schedule;
    struct timecost_problem problem;
    erg_option_tables_problem(passing->tables, schedule, &problem);
    passing->visitor =
        (struct timecost_visitor){.context = passing, .deadline = -1, .piece = pass_piece};
    passing->cost_j = erg_option_tables_cheapest_j(passing->tables, schedule);
    pass_on(passing, erg_timecost_longest_path(&problem, 0), 0);
    int result = passing->visitor.enough ? 0 : erg_timecost_sweep(&problem, &passing->visitor, err);
    erg_option_tables_problem_release(&problem);
    return result;
}

int erg_iteration_sweep(const struct erg_pipeline *pipeline, const struct erg_frontier *tables,
                        bool (*each)(void *context, struct erg_breakpoint at, double slope_w),
                        void *context, struct erg_error *err)
{
    struct erg_schedule schedule;
    struct option_tables options = {0};
    struct passing passing = {
        .tables = &options, .schedule = &schedule, .each = each, .context = context};
    if (erg_schedule_init(&schedule, pipeline, err) != 0)
        return -1;
    int result = erg_option_tables_init(&options, &schedule, tables, 0, err);
    if (result == 0)
        result = sweep(&passing, err);
    erg_option_tables_release(&options);
    erg_schedule_release(&schedule);
    return result;
}
