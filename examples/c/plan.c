/*
 * The point of a plan for a deadline, and what a stage does there: plan PLAN.json SECONDS
 *
 *     cc plan.c $(pkg-config --cflags --libs ergon) -o plan && ./plan out/plan.json 5.2
 */
#include <ergon/plan.h>
#include <stdio.h>
#include <stdlib.h>

static int print(struct erg_plan *plan, double deadline_s, struct erg_error *err)
{
    enum { MOST = 256 };
    struct erg_plan_goal goal = {.size = sizeof goal, .deadline_s = deadline_s};
    struct erg_plan_info info = {.size = sizeof info};
    struct erg_plan_pass passes[MOST];
    size_t count;
    passes[0].size = sizeof passes[0];
    if (erg_plan_choose(plan, &goal, err) != 0 || erg_plan_info(plan, &info, err) != 0 ||
        erg_plan_passes(plan, 0, passes, MOST, &count, err) != 0)
        return -1;
    printf("%s, point %d: %.4f s, %.1f J (%s)\n", info.method, (int)info.point + 1, info.time_s,
           info.energy_j, info.rule);
    for (size_t i = 0; i < count && i < MOST; i++)
        printf("%8.4f s  %s %d at %d MHz\n", passes[i].start_s,
               passes[i].direction == ERG_FORWARD ? "forward " : "backward",
               (int)passes[i].microbatch, (int)passes[i].clock_mhz);
    return 0;
}

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_plan *plan;
    if (argc != 3) {
        fprintf(stderr, "usage: plan PLAN.json SECONDS\n");
        return 2;
    }
    if (erg_plan_open(&plan, argv[1], &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    const int status = print(plan, strtod(argv[2], NULL), &err);
    if (status != 0)
        fprintf(stderr, "%s\n", err.message);
    erg_plan_free(plan);
    return status ? (int)err.status : 0;
}
