/*
 * Finds the power limit at which a training takes the least energy, by its own steps.
 *
 *     cc tune.c $(pkg-config --cflags --libs ergon) -o tune && ./tune 300 500 100
 *
 * The numbers are the least and the highest limit and the step between two, in watts. Limits take
 * root or a daemon.
 */
#include <ergon/tune.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void train(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* your step; wait for the GPU */
}

static int tune_steps(struct erg_tune *tune, struct erg_tune_stats *stats, struct erg_error *err)
{
    for (erg_tune_stats(tune, stats); !stats->state; erg_tune_stats(tune, stats)) {
        if (erg_tune_step_begin(tune, err) != 0)
            return -1;
        train();
        if (erg_tune_step_end(tune, err) != 0)
            return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_tune *tune;
    struct erg_tune_stats stats = {.size = sizeof stats};
    struct erg_tune_options options;
    if (argc != 4) {
        fprintf(stderr, "usage: tune LEAST MOST STEP\n");
        return 2;
    }
    erg_tune_defaults(&options);
    options.knob = ERG_TUNE_POWER;
    options.selector = ERG_TUNE_ENERGY;
    options.least = atoi(argv[1]);
    options.most = atoi(argv[2]);
    options.step = atoi(argv[3]);
    options.measure_s = 0.2; /* a GPU settles more slowly: leave the 2 s */
    if (erg_tune_open(&tune, &options, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    int failed = tune_steps(tune, &stats, &err) != 0;
    if (erg_tune_close(tune, failed ? NULL : &err) != 0) /* the limit is what it was before */
        failed = 1;
    if (failed)
        fprintf(stderr, "%s\n", err.message);
    else
        printf("least energy at %d W\n", (int)stats.value);
    return failed ? (int)err.status : 0;
}
