/*
 * A trainer that follows a plan: one rank of a pipeline with one stage, its passes are sleeps.
 *
 *     ergon frontier profile.csv -m 4 -p 80 --plan plan.json
 *     cc hook.c $(pkg-config --cflags --libs ergon) -o hook && ./hook plan.json 4 3
 *
 * It is C++ as well. Clocks take root or a daemon; ./hook plan.json 4 3 observe only measures, and
 * ./hook made.csv 4 100000 profile makes a profile: what its passes need at which clock. There a
 * job of several ranks calls erg_hook_agree() before its first step, with an all-gather of its own.
 */
#include <ergon/ergon.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int step(struct erg_hook *hook, int microbatches, struct erg_error *err)
{
    if (erg_hook_step_begin(hook, err) != 0)
        return -1;
    for (int i = 0; i < 2 * microbatches; i++) {
        const struct timespec work = {0, i % 2 ? 20000000 : 10000000};
        if (erg_hook_begin(hook, i % 2 ? ERG_BACKWARD : ERG_FORWARD, 0, i / 2, NULL, err) != 0)
            return -1;
        nanosleep(&work, NULL); /* your forward or backward pass */
        if (erg_hook_end(hook, NULL, err) != 0)
            return -1;
    }
    return erg_hook_step_end(hook, err);
}

int main(int argc, char **argv)
{
    struct erg_hook *hook;
    struct erg_hook_options options;
    struct erg_hook_stats stats;
    struct erg_error err;
    if (argc < 4) {
        fprintf(stderr, "usage: hook PLAN|PROFILE MICROBATCHES STEPS [observe|profile]\n");
        return 2;
    }
    const int profiles = argc > 4 && argv[4][0] == 'p';
    stats.size = sizeof stats;
    stats.profile_over = stats.profile[0] = 0;
    erg_hook_defaults(&options);
    options.plan = profiles ? NULL : argv[1];
    options.mode = profiles ? ERG_HOOK_PROFILE : argc > 4 ? ERG_HOOK_OBSERVE : ERG_HOOK_FOLLOW;
    int failed = erg_hook_open(&hook, &options, &err) != 0 ||
                 (profiles && erg_hook_profile_to(hook, argv[1], &err) != 0);
    for (int i = 0; i < atoi(argv[3]) && !failed && !stats.profile_over; i++) {
        failed = step(hook, atoi(argv[2]), &err) != 0;
        if (!failed && erg_hook_stats(hook, &stats) == 0 && !profiles)
            printf("step %d: %.3f s, planned %.3f s, %d changes of clock\n", (int)stats.steps,
                   stats.step_last_s, stats.step_planned_s, (int)stats.clock_changes);
    }
    if (failed)
        fprintf(stderr, "%s\n", err.message);
    else if (profiles)
        printf("%s\n", stats.profile[0] ? stats.profile : "no clock was tried long enough");
    return failed ? (int)err.status : erg_hook_close(hook, &err) != 0;
}
