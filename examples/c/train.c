/*
 * Trains a job for some steps and prints the loss of each: ergon train in a program of your own.
 *
 *     ergon tokenize bytes BOOK.txt -o tokens
 *     cc train.c $(pkg-config --cflags --libs ergon) -o train && ./train tiny.yaml 20
 *
 * Where the job is of several ranks: ergon run -n 2 -- ./train job.yaml 20. It is C++ as well.
 */
#include <ergon/ergon.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static struct erg_train *run;

static void stop(int signal)
{
    erg_train_stop(run, signal); /* the step is finished first */
}

static int train(struct erg_train_stats *stats, struct erg_error *err)
{
    signal(SIGINT, stop);
    if (erg_train_resume(run, NULL, err) || erg_train_stats(run, stats, err))
        return -1; /* NULL: from the newest checkpoint, if there is one */
    while (!stats->end) {
        if (erg_train_step(run, err) != 0 || erg_train_stats(run, stats, err) != 0)
            return -1;
        if (stats->rank == 0)
            printf("step %d of %d: loss %.4f, %.0f ms\n", (int)stats->step, (int)stats->steps,
                   stats->loss, 1e3 * stats->step_s);
    }
    return 0;
}

int main(int argc, char **argv)
{
    struct erg_error err;
    struct erg_train_stats stats = {.size = sizeof stats};
    struct erg_train_options options = {.size = sizeof options};
    if (argc < 3 || argc > 4) {
        fprintf(stderr, "usage: train JOB.yaml STEPS [RUN]\n");
        return 2;
    }
    options.steps = strtoull(argv[2], NULL, 10);
    options.folder = argc > 3 ? argv[3] : NULL; /* with it a log, a page and checkpoints */
    if (erg_train_open(&run, argv[1], &options, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return err.status;
    }
    int failed = train(&stats, &err) != 0;
    if (erg_train_close(run, failed ? NULL : &err) != 0)
        failed = 1;
    if (failed)
        fprintf(stderr, "%s\n", err.message);
    else if (stats.saved && stats.rank == 0)
        printf("%s has a checkpoint of step %d\n", options.folder, (int)stats.step);
    return failed ? err.status : 0;
}
