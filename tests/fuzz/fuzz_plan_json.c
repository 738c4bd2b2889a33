/* libFuzzer: any bytes as a plan. What is accepted must be usable without a further check. */
#include "plan/plan.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void use_method(const struct erg_plan *plan, enum erg_method method)
{
    const struct erg_plan_method *own = &plan->methods[method];
    for (size_t p = 0; p < own->point_count + own->slower_count; p++) {
        const struct erg_plan_point *point = &own->points[p];
        double time_s, energy_j;
        erg_plan_evaluate(plan, point, NULL, &time_s, &energy_j);
        if (!(time_s > 0) || !isfinite(time_s) || !(energy_j >= 0) || !isfinite(energy_j))
            abort();
        for (size_t i = 0; i < plan->schedule.count; i++)
            if (erg_plan_option(plan, point, i)->clock_mhz < 1)
                abort();
    }
    const struct erg_goal goals[] = {
        {.objective = ERG_FASTEST},   {.objective = ERG_LEAST_ENERGY},
        {.objective = ERG_KNEE},      {ERG_LEAST_ENERGY, .deadline_s = 1},
        {ERG_FASTEST, .energy_j = 1}, {ERG_LEAST_ENERGY, .straggler_s = 1}};
    for (size_t g = 0; g < sizeof goals / sizeof *goals; g++) {
        struct erg_error err;
        size_t point = 0;
        if (erg_plan_pick(plan, method, &goals[g], &point, &err) == 0 &&
            point >= own->point_count + own->slower_count)
            abort();
    }
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct erg_error err;
    struct erg_plan *plan;
    if (erg_plan_parse(&plan, "plan.json", (const char *)data, size, &err) != 0)
        return 0;
    for (int i = 0; i < ERG_METHOD_COUNT; i++)
        use_method(plan, (enum erg_method)i);
    if (plan->selected.point >= plan->methods[plan->selected.method].point_count)
        abort();
    erg_plan_free(plan);
    return 0;
}
