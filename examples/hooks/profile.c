/*
 * A trainer that finds out what its passes need at which clock while it trains: one rank of a
 * pipeline with one stage, its passes are sleeps.
 *
 *     cc profile.c $(pkg-config --cflags --libs ergon) -o profile && ./profile profile.csv 4
 *
 * Then it says how to make a plan, which loop.c follows. Clocks take root or a daemon, and a job of
 * several ranks calls erg_hook_agree() before its first step, with an all-gather of its own.
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
    if (argc < 3) {
        fprintf(stderr, "usage: profile PROFILE.csv MICROBATCHES [MOST_STEPS]\n");
        return 2;
    }
    erg_hook_defaults(&options);
    options.mode = ERG_HOOK_PROFILE;
    stats.size = sizeof stats;
    stats.profile_over = stats.profile[0] = 0;
    int failed =
        erg_hook_open(&hook, &options, &err) != 0 || erg_hook_profile_to(hook, argv[1], &err) != 0;
    for (int i = argc > 3 ? atoi(argv[3]) : 100000; i > 0 && !failed && !stats.profile_over; i--)
        failed = step(hook, atoi(argv[2]), &err) != 0 || erg_hook_stats(hook, &stats) != 0;
    if (failed) {
        fprintf(stderr, "%s\n", err.message);
        return (int)err.status;
    }
    printf("%s\n", stats.profile[0] ? stats.profile : "no clock was tried long enough");
    return erg_hook_close(hook, &err) != 0;
}
