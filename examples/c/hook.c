/*
 * A trainer that follows a plan: one rank of a pipeline with one stage, its passes are sleeps.
 *
 *     ergon frontier profile.csv -m 4 -p 80 --plan plan.json
 *     cc hook.c $(pkg-config --cflags --libs ergon) -o hook && ./hook plan.json 4 3
 *
 * It is C++ as well. Clocks take root or a daemon; ./hook plan.json 4 3 observe only measures.
 */
#include <ergon/ergon.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int pass(struct erg_hook *hook, int kind, int microbatch, struct erg_error *err)
{
    struct timespec work;
    work.tv_sec = 0;
    work.tv_nsec = kind == ERG_FORWARD ? 10000000 : 20000000;
    if (erg_hook_begin(hook, kind, 0, microbatch, NULL, err) != 0)
        return -1;
    nanosleep(&work, NULL); /* your forward or backward pass */
    return erg_hook_end(hook, NULL, err);
}

static int step(struct erg_hook *hook, int microbatches, struct erg_error *err)
{
    if (erg_hook_step_begin(hook, err) != 0)
        return -1;
    for (int i = 0; i < microbatches; i++)
        if (pass(hook, ERG_FORWARD, i, err) || pass(hook, ERG_BACKWARD, i, err))
            return -1;
    return erg_hook_step_end(hook, err);
}

int main(int argc, char **argv)
{
    struct erg_hook *hook;
    struct erg_hook_options options;
    struct erg_hook_stats stats;
    struct erg_error err;
    if (argc < 4) {
        fprintf(stderr, "usage: hook PLAN.json MICROBATCHES STEPS [observe]\n");
        return 2;
    }
    erg_hook_defaults(&options);
    options.plan = argv[1];
    options.mode = argc > 4 ? ERG_HOOK_OBSERVE : ERG_HOOK_FOLLOW;
    int failed = erg_hook_open(&hook, &options, &err) != 0;
    for (int i = 0; i < atoi(argv[3]) && !failed; i++) {
        failed = step(hook, atoi(argv[2]), &err) != 0;
        stats.size = sizeof stats;
        if (!failed && erg_hook_stats(hook, &stats) == 0)
            printf("step %d: %.3f s, planned %.3f s, %d changes of clock\n", (int)stats.steps,
                   stats.step_last_s, stats.step_planned_s, (int)stats.clock_changes);
    }
    if (failed)
        fprintf(stderr, "%s\n", err.message);
    return failed ? (int)err.status : erg_hook_close(hook, &err) != 0;
}
